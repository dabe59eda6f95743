//! Headless Chromium, driven by the Chrome DevTools Protocol over a pipe: messages are JSON that ends
//! with a zero byte.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use super::world::PATIENCE;
use crate::common::Dir;

/// A browser with one page; ended with the test.
#[derive(Debug)]
pub struct Chromium {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// Events of the page, as far as they were received.
    events: Vec<Value>,
    next: u64,
    session: String,
    _profile: Dir,
}

/// Returns the installed browser.
fn program() -> Option<&'static str> {
    let known = ["chromium", "chromium-browser", "google-chrome"];
    known.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

impl Chromium {
    /// Starts a browser; `None`, with a note, where none is installed.
    pub fn start() -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("skipped: no Chromium; scripts/setup.sh test installs it (package chromium)");
            return None;
        };
        let profile = Dir::new();
        // The browser reads messages from descriptor 3 and writes them to descriptor 4.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, program, "--headless=new", "--remote-debugging-pipe"])
            // A test runs as root, for which the browser has no sandbox of its own.
            .args(["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"])
            .args([
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--disable-background-networking",
            ])
            .arg(format!("--user-data-dir={}", profile.0.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, messages) = channel();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while output.read_until(0, &mut bytes).is_ok_and(|count| count > 0) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                if sender.send(message).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        let input = child.stdin.take().unwrap();
        let session = String::new();
        let mut browser = Self {
            child,
            input,
            messages,
            events: Vec::new(),
            next: 1,
            session,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Executes a command and returns its result.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let reply = self.messages.recv_timeout(PATIENCE).expect("Chromium answers");
            if reply["id"] == id {
                assert!(reply["error"].is_null(), "{method}: {}", reply["error"]);
                return reply["result"].clone();
            }
            self.events.push(reply);
        }
    }

    /// Sets the size of the page in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32, scale: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Chooses the light or the dark colour scheme of the system.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Opens an address.
    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
    }

    /// Returns the value of an expression in the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait(&mut self, expression: &str) {
        let since = Instant::now();
        while self.value(expression) != true {
            if since.elapsed() > PATIENCE {
                let text = self.value("document.body.innerText");
                panic!("never: {expression}\n{text}\n{:#?}", self.problems());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses and releases a key by its name, as `Tab` or `Enter`.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowRight" => 39,
            other => panic!("{other}"),
        };
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text,
            });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Returns what went wrong in the page: exceptions, errors of the console, refused loads.
    pub fn problems(&mut self) -> Vec<String> {
        self.value("0");
        let is_problem = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            _ => false,
        };
        self.events.iter().filter(is_problem).map(|event| event["params"].to_string()).collect()
    }

    /// Returns the addresses that the page requested.
    pub fn requests(&mut self) -> Vec<String> {
        self.value("0");
        let is_request = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        let address =
            |event: &Value| event["params"]["request"]["url"].as_str().unwrap().to_owned();
        self.events.iter().filter(is_request).map(address).collect()
    }

    /// Stores a picture of the page in the folder that `CAUSEWAY_SCREENSHOTS` names, if it does.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("CAUSEWAY_SCREENSHOTS") else { return };
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes =
            base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(name), bytes.unwrap()).unwrap();
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Its helper processes end with it.
        let _ = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(5) {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

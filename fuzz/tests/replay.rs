//! Replays every committed input: the corpora, and the inputs of fixed defects.

use std::path::{Path, PathBuf};

/// The largest size of a target's corpus, in bytes.
const CORPUS_BYTES_MAX: u64 = 200 << 10;

fn inputs(folder: &str, target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[track_caller]
fn replay(name: &str) {
    let target = causeway_fuzz::find(name).unwrap();
    let corpus = inputs("corpus", name);
    assert!(!corpus.is_empty(), "{name} has no corpus");
    let bytes: u64 = corpus.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(
        bytes <= CORPUS_BYTES_MAX,
        "{name}: corpus of {bytes} bytes exceeds the limit: minimise the corpus"
    );
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{name} has no seeds");
    seeds.iter().for_each(|seed| (target.run)(seed));
    for file in corpus.into_iter().chain(inputs("regressions", name)) {
        // Names the input if the target panics.
        println!("{}", file.display());
        (target.run)(&std::fs::read(&file).unwrap());
    }
}

/// Generates a test for each target, and a test that no target is missing.
macro_rules! replays {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            let replayed = [$(stringify!($name)),*];
            let all: Vec<_> = causeway_fuzz::TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(replayed[..], all[..]);
        }
    };
}

replays!(split packed indirect offload exchange frontend vfio_user frames packets record holder config control cluster vnet_language tunnel multiplex roce vxlan unfinished mxoe board entry word stream vmm_socket channel matching reached mlx5_commands mlx5_work sessions fi);

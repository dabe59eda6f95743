//! The state of the full-screen view, which keys and samples change.
//!
//! `commands::top` makes the [`App`], `session` passes keys and outcomes of requests to it, and
//! `screen` draws it, all in the main thread. Nothing here reads the terminal or sends a request. A
//! failed request keeps the last report, with a [`Loss`] until the next sample. An object that is
//! gone leaves the selection at the first line; a key without a meaning changes nothing. A filter
//! takes at most 64 characters, and the interval stays within 0.1 to 3600 s.

use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::listing::{Listing, clean};
use super::report::Report;
use super::sample::Sample;
use super::tables::listing;
use crate::args::TopView;
use crate::error::Error;
use crate::limits::{TOP_FILTER_CHARS_MAX, TOP_INTERVAL_S_MAX, TOP_INTERVAL_S_MIN};

/// The views in the order of their numbers.
pub const VIEWS: [TopView; 4] =
    [TopView::Ports, TopView::Links, TopView::Dispatchers, TopView::Connections];
/// Lines of one step of the page keys.
const PAGE: usize = 10;

/// Order and selection of a view.
#[derive(Debug, Clone, Default)]
pub struct ViewState {
    /// Number of the column that sorts.
    pub column: usize,
    /// Whether the order is reversed.
    pub is_reversed: bool,
    /// Key of the selected line.
    selected: Option<String>,
}

/// The last failed request.
#[derive(Debug, Clone)]
pub struct Loss {
    /// Time since which no sample arrived.
    pub since: Instant,
    /// First line of the error.
    pub text: String,
}

/// The state of the full-screen view.
#[derive(Debug)]
pub struct App {
    /// The view that is shown.
    pub view: TopView,
    views: [ViewState; 4],
    /// Text that shown lines contain.
    pub filter: String,
    /// Whether keys change the filter.
    pub is_editing: bool,
    /// Whether no samples are taken.
    pub is_paused: bool,
    /// Whether the keys are explained.
    pub has_help: bool,
    /// Whether the selected line is explained.
    pub has_details: bool,
    /// Time between two samples, in seconds.
    pub interval: f64,
    last: Sample,
    /// The report that is shown.
    pub report: Report,
    /// The failed request, if no sample arrived since.
    pub loss: Option<Loss>,
    /// Number of reports with rates.
    pub reports: u64,
}

/// Whether the view goes on after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The view goes on.
    Continue,
    /// The user ends the view.
    Quit,
}

impl App {
    /// Returns the state with a first sample, which has no rates.
    pub fn new(first: Sample, interval: f64) -> Self {
        Self {
            view: TopView::Ports,
            views: Default::default(),
            filter: String::new(),
            is_editing: false,
            is_paused: false,
            has_help: false,
            has_details: true,
            interval,
            report: Report::new(None, &first),
            last: first,
            loss: None,
            reports: 0,
        }
    }

    /// Returns order and selection of the shown view.
    pub fn order(&self) -> &ViewState {
        let [ports, links, dispatchers, connections] = &self.views;
        match self.view {
            TopView::Ports => ports,
            TopView::Links => links,
            TopView::Dispatchers => dispatchers,
            TopView::Connections => connections,
        }
    }

    fn order_mut(&mut self) -> &mut ViewState {
        let [ports, links, dispatchers, connections] = &mut self.views;
        match self.view {
            TopView::Ports => ports,
            TopView::Links => links,
            TopView::Dispatchers => dispatchers,
            TopView::Connections => connections,
        }
    }

    /// Sorts the shown view by a column.
    pub fn sort(&mut self, column: usize, is_reversed: bool) {
        let order = self.order_mut();
        (order.column, order.is_reversed) = (column, is_reversed);
    }

    /// Takes the outcome of a request for a sample.
    pub fn update(&mut self, outcome: Result<Sample, Error>) {
        match outcome {
            Ok(sample) => {
                self.report = Report::new(Some(&self.last), &sample);
                self.last = sample;
                self.loss = None;
                self.reports = self.reports.saturating_add(1);
            }
            Err(error) => {
                let text = clean(error.to_string().lines().next().unwrap_or_default());
                let since = self.loss.as_ref().map_or_else(Instant::now, |loss| loss.since);
                self.loss = Some(Loss { since, text });
            }
        }
    }

    /// Returns the shown table, filtered and sorted.
    pub fn listing(&self) -> Listing {
        let mut listing = listing(&self.report, self.view);
        listing.filter(&self.filter);
        listing.sort(self.order().column, self.order().is_reversed);
        listing
    }

    /// Returns the number of the selected line: the first line if the selected object is gone.
    pub fn selected(&self, listing: &Listing) -> usize {
        let key = self.order().selected.as_ref();
        let found = key.and_then(|key| listing.lines.iter().position(|line| line.key == *key));
        found.unwrap_or(0)
    }

    /// Selects the line that `to` computes from the number of the selected line and of the last.
    fn select(&mut self, to: impl FnOnce(usize, usize) -> usize) {
        let listing = self.listing();
        let last = listing.lines.len().saturating_sub(1);
        let at = to(self.selected(&listing), last).min(last);
        self.order_mut().selected = listing.lines.get(at).map(|line| line.key.clone());
    }

    /// Executes a key.
    pub fn key(&mut self, key: KeyEvent) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            let ends = matches!(key.code, KeyCode::Char('c' | 'd'));
            return if ends { Step::Quit } else { Step::Continue };
        }
        if self.is_editing {
            self.edit(key.code);
            return Step::Continue;
        }
        if self.has_help {
            self.has_help = false;
            return Step::Continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char('/' | 'f') => self.is_editing = true,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('+') => self.set_interval(self.interval * 2.0),
            KeyCode::Char('-') => self.set_interval(self.interval / 2.0),
            KeyCode::Char('r') => {
                let order = self.order_mut();
                order.is_reversed = !order.is_reversed;
            }
            KeyCode::Char('<') | KeyCode::Left => self.move_column(false),
            KeyCode::Char('>') | KeyCode::Right => self.move_column(true),
            KeyCode::Enter => self.has_details = !self.has_details,
            KeyCode::Up | KeyCode::Char('k') => self.select(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(|at, _| at.saturating_add(1)),
            KeyCode::PageUp => self.select(|at, _| at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.select(|at, _| at.saturating_add(PAGE)),
            KeyCode::Home => self.select(|_, _| 0),
            KeyCode::End => self.select(|_, last| last),
            KeyCode::Tab => self.turn_view(1),
            KeyCode::BackTab => self.turn_view(VIEWS.len().saturating_sub(1)),
            KeyCode::Char(digit) => {
                let number = digit.to_digit(10).and_then(|n| usize::try_from(n).ok());
                let view = number.and_then(|n| VIEWS.get(n.checked_sub(1)?));
                self.view = view.copied().unwrap_or(self.view);
            }
            _ => {}
        }
        Step::Continue
    }

    /// Changes the filter.
    fn edit(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_editing = false,
            KeyCode::Esc => {
                self.is_editing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c)
                if !c.is_control() && self.filter.chars().count() < TOP_FILTER_CHARS_MAX =>
            {
                self.filter.push(c);
            }
            _ => {}
        }
    }

    fn set_interval(&mut self, seconds: f64) {
        self.interval = seconds.clamp(TOP_INTERVAL_S_MIN, TOP_INTERVAL_S_MAX);
    }

    /// Sorts by the next or the previous column.
    fn move_column(&mut self, is_next: bool) {
        let last = listing(&self.report, self.view).columns.len().saturating_sub(1);
        let order = self.order_mut();
        order.column = match is_next {
            true if order.column >= last => 0,
            true => order.column.saturating_add(1),
            false => order.column.checked_sub(1).unwrap_or(last),
        };
        order.is_reversed = false;
    }

    /// Shows the view that is `steps` behind the present view.
    fn turn_view(&mut self, steps: usize) {
        let at = VIEWS.iter().position(|view| *view == self.view).unwrap_or(0);
        let next = VIEWS.iter().cycle().nth(at.saturating_add(steps));
        self.view = next.copied().unwrap_or(self.view);
    }
}

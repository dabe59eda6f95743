//! Draws the full-screen view: a head of two lines, the table, the details of the selected line,
//! and the keys. The view fits into 80 columns and 24 lines; in less room, columns and details are
//! left out.
//!
//! `session` calls [`draw`] in the main thread, after each sample or key, and every 100 ms while a
//! request has failed. [`draw`] reads the [`App`] and writes cells to the frame, and changes
//! nothing else. A cell of the table that does not fit is cut and ends with `…`; other lines are
//! cut at the edge. Missing rates, as of the first sample, are shown as `-`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table};

use super::app::{App, VIEWS};
use super::listing::{Listing, Tone};
use crate::args::TopView;
use crate::table::{Align, duration};

/// Lines of the details, with their border.
const DETAILS: u16 = 7;
/// Fewest lines of a screen with details.
const DETAILS_FROM: u16 = 16;
/// Columns of the help.
const HELP_WIDTH: u16 = 64;
/// Lines of the help.
const HELP_HEIGHT: u16 = 19;
/// The help.
const HELP: &str = "\
 1-4 Tab         ports, links, dispatchers, connections
 Up Down PgUp    select a line; its reasons of drops and
 PgDn Home End   waits are below the table
 Enter           show or hide them
 < >             sort by another column
 r               reverse the order
 /               filter: lines that contain a text; Enter
                 keeps the filter, Esc clears it
 space           pause, continue
 + -             double or halve the interval
 q Ctrl-C        quit

 TX of a port is sent by its guest, TX of a link by this
 host. DROPS/S are drops, refusals and resets, WAITS/S
 times that traffic waited for its receiver or a limit.

 Any key closes this help.";

/// Draws the view.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let area = frame.area();
    let listing = app.listing();
    let details = if app.has_details && area.height >= DETAILS_FROM { DETAILS } else { 0 };
    let lost = u16::from(app.loss.is_some());
    let [head, loss, table, below, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(lost),
        Constraint::Min(1),
        Constraint::Length(details),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, app, &listing, head);
    if let Some(lost) = &app.loss {
        let since = duration(lost.since.elapsed().as_secs_f64());
        let text = format!(" NO DATA for {since}, trying again: {}", lost.text);
        let style = Style::new().fg(Color::White).bg(Color::Red).add_modifier(Modifier::BOLD);
        frame.render_widget(Paragraph::new(text).style(style), loss);
    }
    draw_table(frame, app, &listing, table);
    if details > 0 {
        draw_details(frame, app, &listing, below);
    }
    frame.render_widget(Paragraph::new(keys_line(app)), keys);
    if app.has_help {
        draw_help(frame, area);
    }
}

/// Draws the line about the daemon, and the line of views.
fn draw_head(frame: &mut Frame<'_>, app: &App, listing: &Listing, area: Rect) {
    let report = &app.report;
    let attached = report.ports.iter().filter(|port| port.guest_attached).count();
    let up = report.links.iter().filter(|link| link.state != "down").count();
    let period = report.period_seconds.map_or("-".into(), |seconds| format!("{seconds:.1} s"));
    let mut first = vec![
        Span::styled(" causeway", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!(
            "  up {}  rates over {period}  ports {attached}/{} attached  links {up}/{} up",
            duration(report.uptime_seconds),
            report.ports.len(),
            report.links.len(),
        )),
    ];
    if report.restarted {
        first.push(Span::styled("  RESTARTED", Style::new().fg(Color::Yellow)));
    }
    if app.is_paused {
        first.push(Span::styled("  PAUSED", Style::new().fg(Color::Yellow)));
    }
    let mut second = vec![Span::raw(" ")];
    for (number, view) in (1_u8..).zip(VIEWS) {
        let shown = view == app.view;
        let style =
            if shown { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        second.push(Span::styled(format!("{number} {}", title(view)), style));
        second.push(Span::raw("  "));
    }
    let order = app.order();
    let by = listing.columns.get(order.column).map_or("", |column| column.head);
    let reversed = if order.is_reversed { ", reversed" } else { "" };
    second.push(Span::raw(format!(" by {by}{reversed}")));
    // Without lines, the table has the remark.
    if let Some(remark) = listing.remark.as_ref().filter(|_| !listing.lines.is_empty()) {
        second.push(Span::styled(format!("  {remark}"), Style::new().fg(Color::Yellow)));
    }
    frame.render_widget(Paragraph::new(vec![Line::from(first), Line::from(second)]), area);
}

/// Returns the title of a view.
fn title(view: TopView) -> &'static str {
    match view {
        TopView::Ports => "Ports",
        TopView::Links => "Links",
        TopView::Dispatchers => "Dispatchers",
        TopView::Connections => "Connections",
    }
}

/// Draws the page of the table that has the selected line.
fn draw_table(frame: &mut Frame<'_>, app: &App, listing: &Listing, area: Rect) {
    let columns = listing.fit(area.width.into());
    let text = |text: &str, index: usize, width: usize| {
        padded(text, width, listing.columns.get(index).map_or(Align::Left, |column| column.align))
    };
    let sorted = app.order().column;
    let heads = columns.iter().map(|(index, width)| {
        let head = listing.columns.get(*index).map_or("", |column| column.head);
        let style = Style::new().add_modifier(Modifier::BOLD);
        let is_sorted = *index == sorted;
        let style = if is_sorted { style.add_modifier(Modifier::UNDERLINED) } else { style };
        Cell::new(text(head, *index, *width)).style(style)
    });
    let height = usize::from(area.height).saturating_sub(1).max(1);
    let selected = app.selected(listing);
    let first = selected.checked_div(height).unwrap_or(0).saturating_mul(height);
    let rows = (first..).zip(listing.lines.iter().skip(first)).take(height).map(|(at, line)| {
        let cells = columns.iter().map(|(index, width)| {
            let cell = line.cells.get(*index).map_or("", |cell| cell.text.as_str());
            let head = listing.columns.get(*index).map_or("", |column| column.head);
            let colour = if head == "STATE" { colour(line.tone) } else { Style::new() };
            Cell::new(text(cell, *index, *width)).style(colour)
        });
        let style = if at == selected { Style::new().bg(Color::DarkGray) } else { Style::new() };
        Row::new(cells.collect::<Vec<_>>()).style(style)
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(cast(*width)));
    let dim =
        if app.loss.is_some() { Style::new().add_modifier(Modifier::DIM) } else { Style::new() };
    let table = Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
        .header(Row::new(heads.collect::<Vec<_>>()))
        .column_spacing(1)
        .style(dim);
    frame.render_widget(table, area);
    if listing.lines.is_empty() && area.height > 2 {
        let empty = match (&listing.remark, app.filter.is_empty()) {
            (Some(remark), _) => remark.as_str(),
            (None, true) => "none",
            (None, false) => "no line contains the filter",
        };
        let below = Rect { y: area.y.saturating_add(1), height: 1, ..area };
        frame.render_widget(Paragraph::new(format!(" {empty}")), below);
    }
}

/// Returns the style of a state.
fn colour(tone: Tone) -> Style {
    match tone {
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Idle => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Tone::Plain => Style::new(),
    }
}

/// Draws the details of the selected line.
fn draw_details(frame: &mut Frame<'_>, app: &App, listing: &Listing, area: Rect) {
    let line = listing.lines.get(app.selected(listing));
    let name = line.map_or("", |line| line.key.as_str());
    let block = Block::new().borders(Borders::TOP).title(format!(" {name} "));
    let details = line.map(|line| line.details.as_slice()).unwrap_or_default();
    let room = usize::from(area.height).saturating_sub(1);
    let mut shown: Vec<Line<'_>> =
        details.iter().take(room).map(|text| Line::from(format!(" {text}"))).collect();
    if details.len() > room && room > 0 {
        let hidden = details.len().saturating_sub(room).saturating_add(1);
        shown.pop();
        shown.push(Line::from(format!(" and {hidden} more: see `causeway port show`")));
    }
    frame.render_widget(Paragraph::new(shown).block(block), area);
}

/// Returns the last line: the filter while it is edited, otherwise the keys.
fn keys_line(app: &App) -> Line<'_> {
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    if app.is_editing {
        return Line::from(vec![Span::styled(format!(" filter: {}_", app.filter), reversed)]);
    }
    let mut line =
        vec![Span::raw(" ? help  Tab view  < > sort  r reverse  / filter  space pause  q quit")];
    if !app.filter.is_empty() {
        line.insert(0, Span::styled(format!(" filter: {} ", app.filter), reversed));
    }
    Line::from(line)
}

/// Draws the help over the view.
fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (HELP_WIDTH.min(area.width), HELP_HEIGHT.min(area.height));
    let middle = |all: u16, part: u16| all.saturating_sub(part) / 2;
    let x = area.x.saturating_add(middle(area.width, width));
    let y = area.y.saturating_add(middle(area.height, height));
    let area = Rect { x, y, width, height };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" causeway top ");
    frame.render_widget(Paragraph::new(HELP).block(block), area);
}

/// Pads or cuts a text to a width; a cut text ends with `…`.
fn padded(text: &str, width: usize, align: Align) -> String {
    let long = text.chars().count() > width;
    let cut: String = text.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    let text = if long { cut.as_str() } else { text };
    match align {
        Align::Left => format!("{text:<width$}"),
        Align::Right => format!("{text:>width$}"),
    }
}

fn cast(width: usize) -> u16 {
    u16::try_from(width).unwrap_or(u16::MAX)
}

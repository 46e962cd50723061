//! The four tables: which columns they have at which width, and what stands in them.

use ratatui::layout::{Alignment, Constraint};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Row, Table};

use super::fleet::{Decision, Fleet, Live, Node, Session};
use super::words::{self, NOTHING, count, maybe, span};

/// From so many columns on everything is shown, and tables stand side by side.
pub const WIDE: u16 = 110;

/// A column: its title, its width, and whether numbers stand in it.
struct Column(&'static str, Constraint, Alignment);

const LEFT: Alignment = Alignment::Left;
const RIGHT: Alignment = Alignment::Right;

fn table<'a>(title: String, columns: Vec<Column>, lines: Vec<Vec<Text<'a>>>) -> Table<'a> {
    let head: Vec<Cell> =
        columns.iter().map(|Column(name, _, side)| Cell::from(Text::from(*name).alignment(*side))).collect();
    let sides: Vec<Alignment> = columns.iter().map(|column| column.2).collect();
    let rows = lines.into_iter().map(|line| {
        let cells = line.into_iter().zip(&sides).map(|(text, side)| Cell::from(text.alignment(*side)));
        Row::new(cells.collect::<Vec<_>>())
    });
    let title = Line::from(Span::styled(format!(" {title} "), Style::new().add_modifier(Modifier::BOLD)));
    Table::new(rows.collect::<Vec<_>>(), columns.iter().map(|column| column.1).collect::<Vec<_>>())
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::DIM)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .column_spacing(2)
        .block(Block::new().borders(Borders::TOP).border_style(Style::new().add_modifier(Modifier::DIM)).title(title))
}

fn coloured(text: impl Into<String>, colour: Color) -> Text<'static> {
    Text::styled(text.into(), Style::new().fg(colour))
}

/// As wide as the longest of these names, within reason.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> Constraint {
    const NAME_MAX: usize = 28;
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    Constraint::Length(longest.clamp(8, NAME_MAX) as u16)
}

pub fn nodes<'a>(fleet: &Fleet, shown: &[&Node], order: &str, width: u16) -> Table<'a> {
    let wide = width >= WIDE;
    let mut columns = vec![
        Column("node", named(shown.iter().map(|node| node.name.as_str())), LEFT),
        Column("state", Constraint::Length(13), LEFT),
        Column("in use", Constraint::Length(14), LEFT),
        Column("wait", Constraint::Length(5), RIGHT),
        Column("first token", Constraint::Length(11), RIGHT),
    ];
    if wide {
        columns.extend([
            Column("reads/s", Constraint::Length(8), RIGHT),
            Column("writes/s", Constraint::Length(8), RIGHT),
            Column("in memory", Constraint::Fill(2), LEFT),
        ]);
    }
    let lines = shown.iter().map(|node| {
        let (mark, word, colour) = words::state(&node.standing.state);
        let (running, slots) = (node.running(), node.slots());
        let in_use =
            if slots == 0 { "idle".into() } else { format!("{running}/{slots} {}", words::slots(running, slots)) };
        let mut cells = vec![
            Text::from(node.name.clone()),
            coloured(format!("{mark} {word}"), colour),
            Text::from(in_use),
            Text::from(count(node.waiting())),
            Text::from(maybe(fleet.first_token_ms(node), span)),
        ];
        if wide {
            let fastest = |of: fn(&super::fleet::Model) -> Option<f64>| node.busy().filter_map(of).reduce(f64::max);
            let models: Vec<&str> = node.busy().map(|model| model.name.as_str()).collect();
            cells.push(Text::from(words::rate(fastest(|model| model.prefill_tokens_per_s))));
            cells.push(Text::from(words::rate(fastest(|model| model.decode_tokens_per_s))));
            cells.push(Text::from(if models.is_empty() { NOTHING.into() } else { models.join(", ") }));
        }
        cells
    });
    let up = fleet.nodes().filter(|node| node.is_up()).count();
    table(format!("Nodes, {up} of {} up, by {order}", shown.len()), columns, lines.collect())
}

pub fn live<'a>(live: &[Live], under_way: u64, width: u16) -> Table<'a> {
    let mut columns = vec![
        Column("node", named(live.iter().filter_map(|request| request.node.as_deref())), LEFT),
        Column("does", Constraint::Length(12), LEFT),
        Column("for", Constraint::Length(7), RIGHT),
        Column("warmth", Constraint::Length(11), LEFT),
    ];
    // It has half of a wide screen.
    let roomy = width >= WIDE * 3 / 2 || (60..WIDE).contains(&width);
    if roomy {
        columns.push(Column("model", Constraint::Fill(1), LEFT));
    }
    let lines = live.iter().map(|request| {
        let (does, colour) = match request.phase.as_str() {
            "queued" => ("waits here", Color::Yellow),
            "answering" => ("answers", Color::Green),
            _ => ("first token", Color::Cyan),
        };
        let (warmth, warm) = words::warmth(&request.affinity);
        let mut cells = vec![
            Text::from(request.node.clone().unwrap_or_else(|| NOTHING.into())),
            coloured(does, colour),
            Text::from(span(request.running_ms)),
            coloured(warmth, warm),
        ];
        if roomy {
            cells.push(Text::from(request.model.clone()));
        }
        cells
    });
    table(format!("Under way, {under_way}"), columns, lines.collect())
}

pub fn sessions<'a>(sessions: &[Session], in_all: u64) -> Table<'a> {
    let columns = vec![
        Column("conversation", Constraint::Length(12), LEFT),
        Column("home", named(sessions.iter().map(|session| session.node.as_str())), LEFT),
        Column("turns", Constraint::Length(5), RIGHT),
        Column("kept warm", Constraint::Length(15), RIGHT),
        Column("moved", Constraint::Length(5), RIGHT),
    ];
    let lines = sessions.iter().map(|session| {
        let about = if session.saved_is_estimate { "≈" } else { "" };
        vec![
            Text::from(session.session.chars().take(8).collect::<String>()),
            Text::from(session.node.clone()),
            Text::from(count(session.turns)),
            Text::from(format!("{about}{} of {}", count(session.saved_tokens), count(session.prompt_tokens))),
            Text::from(count(session.moved)),
        ]
    });
    table(format!("Conversations, {}", count(in_all)), columns, lines.collect())
}

pub fn decisions<'a>(recent: &[Decision], at_ms: u64, width: u16) -> Table<'a> {
    let wide = width >= WIDE;
    let mut columns = vec![
        Column("ended", Constraint::Length(7), RIGHT),
        Column("node", named(recent.iter().filter_map(|decision| decision.node.as_deref())), LEFT),
        Column("because", Constraint::Length(if wide { 28 } else { 16 }), LEFT),
        Column("score", Constraint::Length(7), RIGHT),
        Column("first token", Constraint::Length(11), RIGHT),
    ];
    if wide {
        columns.extend([
            Column("queued", Constraint::Length(7), RIGHT),
            Column("next best", Constraint::Length(26), LEFT),
            Column("model", Constraint::Fill(1), LEFT),
        ]);
    }
    let lines = recent.iter().map(|decision| {
        let (because, colour) = because(decision);
        let ended = at_ms.saturating_sub(decision.wall_ms + decision.total_ms as u64);
        let mut cells = vec![
            Text::from(span(ended as f64)),
            Text::from(decision.node.clone().unwrap_or_else(|| "no node".into())),
            coloured(because, colour),
            Text::from(maybe(decision.score, |score| format!("{score:.1}"))),
            Text::from(maybe(decision.first_byte_ms, span)),
        ];
        if wide {
            let behind = decision.runner_up.as_ref().zip(decision.score);
            let behind = behind.map(|(second, score)| lead(&second.node, score - second.score));
            cells.push(Text::from(if decision.queue_ms >= 1.0 { span(decision.queue_ms) } else { NOTHING.into() }));
            cells.push(Text::from(behind.unwrap_or_else(|| NOTHING.into())));
            cells.push(Text::from(decision.model.clone()));
        }
        cells
    });
    table("Why the latest went where they went".into(), columns, lines.collect())
}

/// How far it was ahead of the next best.
fn lead(second: &str, ahead: f64) -> String {
    match ahead {
        level if level.abs() < 0.05 => format!("{second}, level"),
        ahead if ahead > 0.0 => format!("{second}, {ahead:.1} behind"),
        _ => format!("{second}, which was full"),
    }
}

fn because(decision: &Decision) -> (String, Color) {
    let (warmth, colour) = words::warmth(&decision.affinity);
    match (&decision.lost, decision.outcome.as_str()) {
        (_, outcome) if outcome != "ok" => (outcome.replace('_', " "), Color::Red),
        (Some(lost), _) => (format!("{warmth}: {} {}", lost.from, lost.why), colour),
        (None, _) => (warmth.into(), colour),
    }
}

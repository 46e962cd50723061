//! What is on the screen, and what keys do to it.
//!
//! Everything is drawn from the latest snapshot; the chosen node is remembered by its name.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, TableState, Wrap};

use super::cluster;
use super::fleet::{Fleet, Node};
use super::table::{self, WIDE};
use super::words::{self, count, maybe, span};

/// What a key asks for beyond the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Quit,
    Drain(String),
    Resume(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Trouble,
    Name,
    Load,
    FirstToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Nothing,
    Detail,
    Help,
}

pub struct Screen {
    fleet: Fleet,
    chosen: Option<String>,
    order: Order,
    open: Open,
    /// What came of the last order, or why there is nothing new.
    said: Option<(String, Color)>,
    /// For so many more snapshots.
    said_for: u8,
    scrolled: TableState,
    /// On paper: nothing is chosen and no key is told of.
    pub is_printed: bool,
}

/// Of each table but the nodes', in what is printed.
const PRINTED_ROWS: usize = 10;

/// Snapshots for which it is seen what came of an order: some seconds.
const SAID_FOR: u8 = 6;

/// A table's title and head.
const HEAD: usize = 2;

/// At the bottom.
const FOOT_LINES: u16 = 1;

const KEYS: &str = "q quit   ↑↓ choose   Enter more   d drain   r resume   s sort   ? help";

const HELP: [&str; 9] = [
    "q, Esc, Ctrl-C   leave",
    "↑ ↓, j k         choose a node; Home and End too",
    "Enter            all of the chosen node",
    "d                drain it: no new work, what runs may finish",
    "r                resume it",
    "s                sort by trouble, name, load, first token",
    "",
    "First token: mean of the last hour. Reads, writes: tokens a second, of its fastest model.",
    "≈ marks an estimate. The dashboard at the same address has receipts and more.",
];

impl Screen {
    pub fn of(fleet: Fleet) -> Screen {
        let mut screen = Screen {
            fleet: Fleet::default(),
            chosen: None,
            order: Order::Trouble,
            open: Open::Nothing,
            said: None,
            said_for: 0,
            scrolled: TableState::default(),
            is_printed: false,
        };
        screen.see(fleet);
        screen
    }

    pub fn see(&mut self, fleet: Fleet) {
        self.fleet = fleet;
        self.said_for = self.said_for.saturating_sub(1);
        if self.said_for == 0 {
            self.said = None;
        }
        if self.place().is_none() {
            self.chosen = self.nodes().first().map(|node| node.name.clone());
        }
    }

    /// There is nothing new to see.
    pub fn miss(&mut self, why: String) {
        (self.said, self.said_for) = (Some((why, Color::Red)), 1);
    }

    pub fn say(&mut self, words: String) {
        (self.said, self.said_for) = (Some((words, Color::Reset)), SAID_FOR);
    }

    pub fn key(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Option<Wish> {
        match code {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Some(Wish::Quit),
            KeyCode::Esc | KeyCode::Char('q') if self.open != Open::Nothing => self.open = Open::Nothing,
            KeyCode::Esc | KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Down | KeyCode::Char('j') => self.choose(|place, last| (place + 1).min(last)),
            KeyCode::Up | KeyCode::Char('k') => self.choose(|place, _| place.saturating_sub(1)),
            KeyCode::Home => self.choose(|_, _| 0),
            KeyCode::End => self.choose(|_, last| last),
            KeyCode::Enter => self.toggle(Open::Detail),
            KeyCode::Char('?') => self.toggle(Open::Help),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('d') => return self.chosen.clone().map(Wish::Drain),
            KeyCode::Char('r') => return self.chosen.clone().map(Wish::Resume),
            _ => {}
        }
        None
    }

    fn toggle(&mut self, open: Open) {
        self.open = if self.open == open { Open::Nothing } else { open };
    }

    fn choose(&mut self, step: impl Fn(usize, usize) -> usize) {
        let Some(last) = self.nodes().len().checked_sub(1) else { return };
        let place = step(self.place().unwrap_or(0), last);
        self.chosen = self.nodes().get(place).map(|node| node.name.clone());
    }

    /// In the order that is wished.
    fn nodes(&self) -> Vec<&Node> {
        let mut nodes: Vec<&Node> = self.fleet.nodes().collect();
        // Names first: what follows keeps that order among equals.
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        match self.order {
            Order::Name => {}
            Order::Trouble => nodes.sort_by_key(|node| node.is_up()),
            Order::Load => nodes.sort_by(|a, b| b.load().total_cmp(&a.load())),
            Order::FirstToken => {
                let late = |node: &Node| self.fleet.first_token_ms(node).unwrap_or(-1.0);
                nodes.sort_by(|a, b| late(b).total_cmp(&late(a)));
            }
        }
        nodes
    }

    fn place(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.nodes().iter().position(|node| node.name == *chosen)
    }

    /// What it takes to show all of it that is printed.
    pub fn height(&self, width: u16) -> u16 {
        let [nodes, live, sessions, recent] = self.wants();
        let middle = if width >= WIDE { live.max(sessions) } else { live + sessions };
        u16::try_from(nodes + middle + recent).unwrap_or(u16::MAX / 2) + self.head_lines() + FOOT_LINES
    }

    /// One more where there are other replicas.
    fn head_lines(&self) -> u16 {
        2 + u16::from(self.fleet.cluster.is_some())
    }

    /// Lines for the nodes, what is under way, the conversations and the decisions.
    fn wants(&self) -> [usize; 4] {
        let rows = if self.is_printed { PRINTED_ROWS } else { usize::MAX };
        let of = |count: usize, most: usize| count.min(most) + HEAD;
        let fleet = &self.fleet;
        [
            of(fleet.nodes().count(), usize::MAX - HEAD),
            of(fleet.live.len(), rows),
            of(fleet.hour.sessions.len(), rows),
            of(fleet.recent.len(), rows),
        ]
    }

    pub fn draw(&mut self, frame: &mut Frame) {
        let heads = [Constraint::Length(self.head_lines()), Constraint::Min(0), Constraint::Length(1)];
        let [top, body, bottom] = Layout::vertical(heads).areas(frame.area());
        frame.render_widget(Paragraph::new(self.headline()), top);
        self.tables(frame, body);
        if !self.is_printed {
            frame.render_widget(self.footer(), bottom);
        }
        match self.open {
            Open::Nothing => {}
            Open::Help => popup(frame, "Help", HELP.map(Line::from).to_vec()),
            Open::Detail => {
                if let Some(node) = self.place().and_then(|place| self.nodes().get(place).copied().cloned()) {
                    popup(frame, &node.name, detail(&node));
                }
            }
        }
    }

    fn headline(&self) -> Vec<Line<'static>> {
        let fleet = &self.fleet;
        let (word, colour) = match (&fleet.ready, fleet.process.stage.as_str()) {
            (serde_json::Value::Bool(true), "serving" | "") => ("ready".to_owned(), Color::Green),
            (_, "serving" | "") => ("not ready".to_owned(), Color::Red),
            (_, stage) => (stage.to_owned(), Color::Yellow),
        };
        let drains = fleet.nodes().filter(|node| node.draining).count();
        let drains = if drains > 0 { format!(", {drains} draining") } else { String::new() };
        let simulated = if fleet.simulated { ", simulated" } else { "" };
        let since = span(fleet.at_ms.saturating_sub(fleet.process.since_ms) as f64);
        let first = Line::from(vec![
            Span::styled("Warmgate ", Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(format!("{}  ", fleet.version)),
            Span::styled(word, Style::new().fg(colour).add_modifier(Modifier::BOLD)),
            Span::raw(format!("{drains}{simulated}, policy {}, for {since}", fleet.policy)),
        ]);
        let cluster = fleet.cluster.as_ref().map(|cluster| cluster::line(cluster, fleet.at_ms));
        [first, Line::from(self.sums())].into_iter().chain(cluster).collect()
    }

    fn sums(&self) -> String {
        let fleet = &self.fleet;
        let total = &fleet.hour.total;
        let prompt = total.cached_tokens + total.uncached_tokens;
        let warm = total.cached_tokens + total.believed_cached_tokens;
        let about = if total.believed_cached_tokens > 0 { "≈" } else { "" };
        let share = if prompt > 0 {
            format!("{about}{:.0} %", 100.0 * warm as f64 / prompt as f64)
        } else {
            words::NOTHING.into()
        };
        let lost = if total.moved > 0 {
            format!("{} moved, ≈{} lost", count(total.moved), span(total.lost_s_estimated * 1000.0))
        } else {
            "no warmth lost".into()
        };
        format!(
            "now {}, {} wait   first token {} (p95 {})   kept warm {share}   {lost}   {} requests, {} failed",
            fleet.in_flight,
            fleet.waiting,
            maybe(total.first_byte_p50_ms, span),
            maybe(total.first_byte_p95_ms, span),
            count(total.requests),
            count(total.failures),
        )
    }

    fn tables(&mut self, frame: &mut Frame, body: Rect) {
        let wide = body.width >= WIDE;
        let [nodes, live, sessions, recent] = self.wants();
        let wants = if wide { vec![nodes, live.max(sessions), recent] } else { vec![nodes, live, recent, sessions] };
        let heights = shares(&wants, usize::from(body.height));
        let areas = Layout::vertical(heights.iter().map(|lines| Constraint::Length(*lines))).split(body);
        let fleet = &self.fleet;
        let at = |n: usize| areas.get(n).copied().unwrap_or_default();
        let (live_at, sessions_at, recent_at) = if wide {
            let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(3).areas(at(1));
            (left, right, at(2))
        } else {
            (at(1), at(3), at(2))
        };
        frame.render_widget(table::live(&fleet.live, fleet.in_flight, body.width), live_at);
        frame.render_widget(table::sessions(&fleet.hour.sessions, fleet.hour.sessions_in_all), sessions_at);
        frame.render_widget(table::decisions(&fleet.recent, fleet.at_ms, body.width), recent_at);
        let shown = self.nodes();
        let nodes = table::nodes(fleet, &shown, self.order.name(), body.width);
        let chosen = self.place().filter(|_| !self.is_printed);
        self.scrolled.select(chosen);
        frame.render_stateful_widget(nodes, at(0), &mut self.scrolled);
    }

    fn footer(&self) -> Paragraph<'static> {
        match &self.said {
            Some((words, colour)) => Paragraph::new(words.clone()).style(Style::new().fg(*colour)),
            None => Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::DIM)),
        }
    }
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Trouble => Order::Name,
            Order::Name => Order::Load,
            Order::Load => Order::FirstToken,
            Order::FirstToken => Order::Trouble,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Trouble => "trouble",
            Order::Name => "name",
            Order::Load => "load",
            Order::FirstToken => "first token",
        }
    }
}

/// Gives each its head and a row, in their order, and then a line at a time to all that want more.
fn shares(wants: &[usize], lines: usize) -> Vec<u16> {
    let mut left = lines;
    let mut given: Vec<usize> = wants
        .iter()
        .map(|want| {
            let first = (*want).min(HEAD + 1).min(left);
            left -= first;
            first
        })
        .collect();
    while left > 0 && given.iter().zip(wants).any(|(given, want)| given < want) {
        for (given, want) in given.iter_mut().zip(wants) {
            if *given < *want && left > 0 {
                *given += 1;
                left -= 1;
            }
        }
    }
    given.into_iter().map(|lines| u16::try_from(lines).unwrap_or(u16::MAX)).collect()
}

fn detail(node: &Node) -> Vec<Line<'static>> {
    let (mark, word, colour) = words::state(&node.standing.state);
    let by = if node.drained_by.is_empty() {
        String::new()
    } else {
        format!(", drained by {}", node.drained_by.join(" and "))
    };
    let reason = node.standing.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let memory = node.memory_bytes.map_or_else(|| "unknown".into(), words::gigabytes);
    let mut lines = vec![
        Line::from(vec![
            Span::styled(format!("{mark} {word}"), Style::new().fg(colour)),
            Span::raw(format!("{reason}{by}")),
        ]),
        Line::from(format!("engine {}, tier {}", node.engine.as_deref().unwrap_or("not recognised yet"), node.tier)),
        Line::from(format!(
            "relied on {:.0} %, {} run there, {} of others",
            node.availability * 100.0,
            node.in_flight,
            node.foreign
        )),
        Line::from(format!(
            "memory in use {} of {memory}, {} models in all",
            words::gigabytes(node.resident_bytes),
            node.models_in_all
        )),
        Line::default(),
    ];
    for model in node.busy() {
        let size = model.bytes.map(|bytes| format!(", {}", words::gigabytes(bytes))).unwrap_or_default();
        let place = if model.loading {
            "is loaded now"
        } else if model.resident {
            "in memory"
        } else {
            "on disk"
        };
        lines.push(Line::styled(model.name.clone(), Style::new().add_modifier(Modifier::BOLD)));
        lines.push(Line::from(format!(
            "  {place}{size}; {} of {} slots ({}), {} wait; reads {}/s, writes {}/s; {}",
            model.running,
            model.slots,
            model.slots_source.replace('_', " "),
            model.waiting,
            words::rate(model.prefill_tokens_per_s),
            words::rate(model.decode_tokens_per_s),
            words::state(&model.state).1,
        )));
    }
    lines
}

fn popup(frame: &mut Frame, title: &str, lines: Vec<Line<'static>>) {
    let all = frame.area();
    let width = all.width.saturating_sub(4).min(96);
    // Some lines may need two.
    let height = u16::try_from(lines.len() + lines.len() / 2 + 2).unwrap_or(u16::MAX).min(all.height.saturating_sub(2));
    let area = Rect::new((all.width - width) / 2, (all.height - height) / 2, width, height);
    frame.render_widget(Clear, area);
    frame.render_widget(Block::bordered().title(format!(" {title} ")), area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area.inner(Margin::new(2, 1)));
}

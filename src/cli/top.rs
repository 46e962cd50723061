//! `warmgate top`: the fleet at a glance in a terminal, over the admin port of a running Warmgate.
//!
//! One thread asks once a second and carries out orders, this one draws and reads keys. The terminal is put back
//! however it ends. `--once` prints one view as plain text and needs no terminal.

mod cluster;
mod fleet;
mod screen;
mod table;
mod words;

pub(super) use words::span;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::{DefaultTerminal, Terminal, backend::TestBackend};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::target::Admin;
use super::{EXIT_WRONG, TopArgs};
use fleet::Fleet;
use screen::{Screen, Wish};

/// For the running Warmgate to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

const EVERY: Duration = Duration::from_secs(1);

/// How soon a key, or what was heard, is seen.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Of what is printed where no terminal says how wide it is.
const COLUMNS: u16 = 120;

/// What the asking thread has to tell.
enum News {
    Seen(Box<Fleet>),
    Silent(String),
    /// What came of an order.
    Said(String),
    Ended,
}

pub fn top(args: &TopArgs) -> ExitCode {
    let admin = match args.target.admin() {
        Ok(admin) => admin,
        Err(wrong) => return complain(&wrong, EXIT_WRONG),
    };
    if !args.once && !io::stdout().is_terminal() {
        return complain("this view needs a terminal; --once prints it as text", EXIT_WRONG);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error.to_string(), 1),
    };
    let first = match runtime.block_on(look(&admin)) {
        Ok(fleet) => fleet,
        Err(why) => return complain(&why, 1),
    };
    if args.once {
        // A reader that went away has seen what it wanted.
        let _ = io::stdout().write_all(printed(first, columns()).as_bytes());
        return ExitCode::SUCCESS;
    }
    let (orders, wanted) = unbounded_channel();
    let (news, heard) = channel();
    let asking = thread::Builder::new().name("ask".into()).spawn(move || runtime.block_on(ask(admin, wanted, news)));
    if let Err(error) = asking {
        return complain(&error.to_string(), 1);
    }
    let send = |wish| orders.send(wish).is_ok();
    let shown = ratatui::try_init().and_then(|mut terminal| show(&mut terminal, Screen::of(first), &heard, &send));
    ratatui::restore();
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("the terminal failed: {error}"), 1),
    }
}

fn complain(why: &str, code: u8) -> ExitCode {
    eprintln!("warmgate: {why}");
    ExitCode::from(code)
}

fn show(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    heard: &Receiver<News>,
    order: &dyn Fn(Wish) -> bool,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        if event::poll(LOOK_EVERY)?
            && let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event::read()?
        {
            match screen.key(code, modifiers) {
                Some(Wish::Quit) => return Ok(()),
                Some(wish) => drop(order(wish)),
                None => {}
            }
        }
        for news in heard.try_iter() {
            match news {
                News::Seen(fleet) => screen.see(*fleet),
                News::Silent(why) => screen.miss(why),
                News::Said(words) => screen.say(words),
                News::Ended => return Ok(()),
            }
        }
    }
}

/// Asks again and again, and carries out what is wished in between, until nobody listens or SIGTERM comes.
async fn ask(admin: Admin, mut wanted: UnboundedReceiver<Wish>, news: Sender<News>) {
    let ended = async {
        match signal(SignalKind::terminate()) {
            Ok(mut term) => drop(term.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    let asking = async {
        loop {
            match timeout(EVERY, wanted.recv()).await {
                Ok(Some(wish)) => {
                    let said = carry_out(&admin, &wish).await;
                    said.into_iter().for_each(|words| drop(news.send(News::Said(words))));
                }
                Ok(None) => return,
                Err(_) => {}
            }
            let told = match look(&admin).await {
                Ok(fleet) => News::Seen(Box::new(fleet)),
                Err(why) => News::Silent(why),
            };
            if news.send(told).is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = ended => {}
        () = asking => {}
    }
    let _ = news.send(News::Ended);
}

async fn look(admin: &Admin) -> Result<Fleet, String> {
    let answer = admin.get("/fleet/snapshot", ANSWER_MAX).await.map_err(|error| admin.silence(&error))?;
    if let Some(why) = admin.turned_away(&answer) {
        return Err(why);
    }
    match answer.status.as_u16() {
        200 => serde_json::from_slice(&answer.body).map_err(|_| format!("{admin} is no Warmgate, or another version")),
        404 => Err(format!("{admin} is no admin port of a Warmgate, or an old one")),
        status => Err(format!("{admin} answered {status}")),
    }
}

async fn carry_out(admin: &Admin, wish: &Wish) -> Option<String> {
    let (node, order) = match wish {
        Wish::Drain(node) => (node, "drain"),
        Wish::Resume(node) => (node, "resume"),
        Wish::Quit => return None,
    };
    let path = format!("/fleet/nodes/{}/{order}", utf8_percent_encode(node, NON_ALPHANUMERIC));
    let answer = match admin.post(&path, b"", ANSWER_MAX).await {
        Ok(answer) => answer,
        Err(error) => return Some(admin.silence(&error)),
    };
    if let Some(why) = admin.turned_away(&answer) {
        return Some(why);
    }
    let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let line = told["lines"][0].as_str().map(str::to_owned);
    Some(line.unwrap_or_else(|| format!("{admin} answered {}", answer.status.as_u16())))
}

fn columns() -> u16 {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    told.or_else(|| ratatui::crossterm::terminal::size().ok().map(|(columns, _)| columns))
        .filter(|columns| *columns > 0)
        .unwrap_or(COLUMNS)
}

/// One view as text, as high as it needs to be.
fn printed(fleet: Fleet, columns: u16) -> String {
    let mut screen = Screen::of(fleet);
    screen.is_printed = true;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, screen.height(columns)));
    let Ok(_) = terminal.draw(|frame| screen.draw(frame));
    text(terminal.backend().buffer())
}

fn text(buffer: &ratatui::buffer::Buffer) -> String {
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let lines =
        cells.chunks(usize::from(buffer.area.width).max(1)).map(|line| line.concat().trim_end().to_owned() + "\n");
    lines.collect::<String>().trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests;

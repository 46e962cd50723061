//! Views drawn into a terminal that is none, and what keys do.

use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use serde_json::json;

use super::*;

fn node(name: &str, state: &str, running: u64, waiting: u64) -> Value {
    json!({
        "name": name, "label": name, "engine": "ollama", "standing": {"state": state, "reason": null},
        "draining": state == "draining", "drained_by": if state == "draining" { vec!["admin"] } else { vec![] },
        "availability": 1.0, "in_flight": running, "models_in_all": 2,
        "models": [{"name": "moss:7b", "resident": true, "bytes": 19_000_000_000u64, "state": "up", "running": running,
            "waiting": waiting, "slots": 4, "slots_source": "configured", "prefill_tokens_per_s": 1400.0,
            "decode_tokens_per_s": 41.5}],
    })
}

fn fleet() -> Fleet {
    let told = json!({
        "at_ms": 100_000, "version": "9.9", "ready": true, "process": {"stage": "serving", "since_ms": 40_000},
        "policy": "fleet", "in_flight": 4, "waiting": 1,
        "nodes": [node("n1", "up", 1, 0), node("n2", "up", 3, 2), null, node("n3", "down", 0, 0)],
        "live": [{"node": "n2", "phase": "answering", "running_ms": 1500.0, "affinity": "session", "model": "moss:7b"}],
        "recent": [{"node": "n1", "score": 93.44, "affinity": "moved", "lost": {"from": "n2", "why": "busy"},
            "outcome": "ok", "first_byte_ms": 250.0, "wall_ms": 90_000, "total_ms": 3000.0, "queue_ms": 0.0,
            "runner_up": {"node": "n2", "score": 90.0}}],
        "hour": {
            "total": {"requests": 7, "failures": 1, "first_byte_p50_ms": 693.0, "first_byte_p95_ms": 14000.0,
                "cached_tokens": 50, "uncached_tokens": 50, "believed_cached_tokens": 13, "moved": 1,
                "lost_s_estimated": 1.7, "nodes": {"n2": {"answered": 3, "first_byte_mean_ms": 2400.0}}},
            "sessions": [{"session": "7f35e333aa", "node": "n1", "turns": 3, "prompt_tokens": 900, "saved_tokens": 600,
                "saved_is_estimate": true, "moved": 1}],
            "sessions_in_all": 1,
        },
    });
    serde_json::from_value(told).unwrap()
}

fn drawn(screen: &mut Screen, columns: u16, lines: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    text(terminal.backend().buffer())
}

#[track_caller]
fn check_has(shown: &str, expected: &[&str]) {
    for words in expected {
        assert!(shown.contains(words), "no {words:?} in\n{shown}");
    }
}

#[test]
fn wide_screens_have_everything() {
    let shown = drawn(&mut Screen::of(fleet()), 140, 40);
    check_has(
        &shown,
        &[
            "Warmgate 9.9  ready, policy fleet, for 1 min",
            "now 4, 1 wait   first token 693 ms (p95 14 s)   kept warm ≈63 %   1 moved, ≈1.7 s lost   7 requests, 1 failed",
            "Nodes, 2 of 3 up, by trouble",
            "! down",
            "✓ up",
            "3/4 ■■■□",
            "2.4 s",
            "moss:7b",
            "Under way, 4",
            "answers",
            "7f35e333",
            "≈600 of 900",
            "moved: n2 busy",
            "93.4",
            "n2, 3.4 behind",
            "q quit",
        ],
    );
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[4].starts_with("n3"), "trouble comes first\n{shown}");
}

#[test]
fn other_replicas_have_a_line_of_their_own() {
    let heard = json!([{"name": "gate-1", "heard_ms_ago": 90, "in_flight": 3}, {"name": "gate-2", "heard_ms_ago": 40_000},
        {"name": "gate-3", "in_flight": 2, "under_way_ms": 3200, "late": true}]);
    let cluster = |told: Value| {
        let mut fleet = fleet();
        fleet.cluster = serde_json::from_value(told).unwrap();
        printed(fleet, 140)
    };
    let shared = cluster(json!({"up": true, "quick": true, "since_ms": 40_000, "answer_ms": 0.31, "other_replicas": 1,
        "heard": heard}));
    check_has(
        &shared,
        &[
            "replicas: shared with 1 for 1 min, Redis 0.3 ms   gate-1 3   gate-2 silent for 40 s   gate-3 2, late by 3.2 s",
        ],
    );
    assert_eq!(shared.lines().count(), printed(fleet(), 140).lines().count() + 1);
    let slow = cluster(json!({"up": true, "quick": false, "answer_ms": 210.0, "other_replicas": 2, "heard": []}));
    check_has(&slow, &["replicas: Redis is slow (210 ms), nobody waits for it"]);
    let full = cluster(json!({"up": true, "quick": true, "answer_ms": 0.2, "other_replicas": 2, "heard": [],
        "problem": "Redis is full"}));
    check_has(&full, &["replicas: shared with 2, but Redis is full"]);
    let away = cluster(json!({"up": false, "since_ms": 95_000, "problem": "the connection is refused"}));
    check_has(&away, &["replicas: on its own for 5.0 s: the connection is refused"]);
    assert!(!printed(fleet(), 140).contains("replicas"));
}

#[test]
fn any_size_of_terminal_will_do() {
    for (columns, lines) in [(1, 1), (2, 3), (20, 5), (40, 12), (60, 24), (80, 24), (110, 30), (300, 100), (80, 1)] {
        for open in [KeyCode::Null, KeyCode::Enter, KeyCode::Char('?')] {
            let mut screen = Screen::of(fleet());
            screen.key(open, KeyModifiers::NONE);
            drawn(&mut screen, columns, lines);
        }
    }
    let narrow = drawn(&mut Screen::of(fleet()), 80, 24);
    check_has(&narrow, &["n2", "3/4 ■■■□", "Under way", "Conversations", "moved: n2 busy"]);
    assert!(!narrow.contains("reads/s"), "{narrow}");
    drawn(&mut Screen::of(Fleet::default()), 80, 24);
}

#[test]
fn what_is_printed_is_whole_and_plain() {
    let shown = printed(fleet(), 120);
    check_has(&shown, &["n1", "n2", "n3", "7f35e333", "n2, 3.4 behind"]);
    assert!(!shown.contains('\u{1b}') && !shown.contains("q quit"), "{shown}");
    assert!(shown.ends_with('\n') && !shown.ends_with("\n\n"), "{shown:?}");
}

#[test]
fn names_from_elsewhere_move_no_cursor() {
    let mut odd = fleet();
    odd.nodes[0].as_mut().unwrap().name = "n1\u{1b}[2J\r\n".into();
    let shown = printed(odd, 120);
    assert!(!shown.contains('\u{1b}') && !shown.contains('\r'), "{shown:?}");
}

#[track_caller]
fn check(keys: &str, expected: Option<Wish>) {
    let mut screen = Screen::of(fleet());
    let wishes = keys.chars().map(|key| screen.key(KeyCode::Char(key), KeyModifiers::NONE));
    assert_eq!(wishes.last().flatten(), expected, "{keys}");
}

#[test]
fn keys() {
    let drain = |node: &str| Some(Wish::Drain(node.into()));
    check("q", Some(Wish::Quit));
    check("?q", None);
    check("?qq", Some(Wish::Quit));
    check("d", drain("n3"));
    check("jd", drain("n1"));
    check("jjjjjd", drain("n2"));
    check("jjkd", drain("n1"));
    check("jr", Some(Wish::Resume("n1".into())));
    // The chosen one stays chosen in another order.
    check("jjsd", drain("n2"));
    check("jjsskkkkd", drain("n2"));
    let mut screen = Screen::of(fleet());
    assert_eq!(screen.key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Quit));
    screen.key(KeyCode::Enter, KeyModifiers::NONE);
    check_has(&drawn(&mut screen, 100, 30), &["engine ollama", "0 of 4 slots (configured)", "reads 1400/s"]);
}

#[test]
fn a_node_that_leaves_is_chosen_no_longer() {
    let mut screen = Screen::of(fleet());
    screen.key(KeyCode::End, KeyModifiers::NONE);
    let mut later = fleet();
    later.nodes.remove(1);
    screen.see(later);
    assert_eq!(screen.key(KeyCode::Char('d'), KeyModifiers::NONE), Some(Wish::Drain("n3".into())));
    screen.miss("no answer".into());
    check_has(&drawn(&mut screen, 100, 30), &["no answer"]);
    screen.see(fleet());
    check_has(&drawn(&mut screen, 100, 30), &["q quit"]);
    screen.say("n3 drains".into());
    for _ in 0..9 {
        screen.see(fleet());
    }
    check_has(&drawn(&mut screen, 100, 30), &["q quit"]);
}

//! One upstream that is several rows: the ranks behind one URL, or the addresses behind one name.

use std::collections::BTreeMap;

use super::discover::Discover;
use super::file::Upstream;
use super::problem::Report;
use crate::engines;

/// More than any machine has accelerators, or a cluster replicas of one model.
pub const RANKS_MAX: u32 = 256;

/// Between an upstream's name and the number of a rank.
pub const RANK_MARK: char = '/';

/// Between an upstream's name and the label of an address.
pub const ADDRESS_MARK: char = '@';

/// Checks what makes rows of each upstream, and that no upstream is named like another one's row.
pub fn check_rows(upstreams: &[Option<Upstream>], report: &mut Report) {
    let mut makers = BTreeMap::new();
    for (index, upstream) in upstreams.iter().enumerate() {
        let Some(upstream) = upstream else { continue };
        check(upstream, &format!("upstreams[{index}]"), report);
        let marks = [(upstream.data_parallel.is_some(), RANK_MARK), (upstream.discover.is_some(), ADDRESS_MARK)];
        for (_, mark) in marks.into_iter().filter(|(makes, _)| *makes) {
            makers.extend(upstream.name.as_ref().map(|name| (format!("{name}{mark}"), name)));
        }
    }
    for (index, upstream) in upstreams.iter().enumerate() {
        let name = upstream.as_ref().and_then(|upstream| upstream.name.as_deref()).unwrap_or_default();
        let stems = name.match_indices([RANK_MARK, ADDRESS_MARK]).map(|(at, mark)| &name[..at + mark.len()]);
        if let Some(maker) = stems.filter_map(|stem| makers.get(stem)).next() {
            let what = format!("is named like a row of {maker}");
            report.add(format!("upstreams[{index}].name"), what, "choose another beginning");
        }
    }
}

fn check(upstream: &Upstream, path: &str, report: &mut Report) {
    if let Some(ranks) = upstream.data_parallel {
        let path = format!("{path}.data_parallel");
        if !(1..=RANKS_MAX).contains(&ranks) {
            report.add(&path, format!("must be from 1 to {RANKS_MAX}"), "");
        }
        let can = upstream.engine.and_then(|engine| engines::find(engine.0)).is_some_and(|it| it.rank_header.is_some());
        if !can {
            let able = engines::ROSTER.iter().filter(|engine| engine.rank_header.is_some()).map(|engine| engine.name);
            let able = able.collect::<Vec<_>>().join(" or ");
            report.add(path, "needs an engine whose ranks can be chosen", format!("write engine: {able}"));
        }
    }
    check_discovery(upstream, path, report);
    if upstream.tls.is_some() && upstream.url.as_ref().is_some_and(|url| !url.tls) {
        report.add(format!("{path}.tls"), "needs a URL that begins with https", "");
    }
}

fn check_discovery(upstream: &Upstream, path: &str, report: &mut Report) {
    let Some(url) = &upstream.url else { return };
    let Some(discover) = &upstream.discover else {
        if is_of_services(&url.host) {
            report.add(format!("{path}.url"), "its host is a name of SRV records", "write `discover: srv` as well");
        }
        return;
    };
    if url.ip().is_some() {
        report.add(format!("{path}.discover"), "needs a host name in the URL", "an address has no others behind it");
    }
    if !discover.is_built_in() {
        let hint = "build one with: cargo build --release --features kube";
        report.add(format!("{path}.discover.{}", discover.name()), "this Warmgate was built without it", hint);
    }
    let is_told = upstream.tls.as_ref().is_some_and(|tls| tls.sni.is_some() || tls.insecure == Some(true));
    if matches!(discover, Discover::Srv(_)) && url.tls && is_of_services(&url.host) && !is_told {
        let what = "no certificate is for a name of SRV records";
        report.add(format!("{path}.url"), what, "write under `tls` the name that they are for, as `sni`");
    }
}

/// Like `_http._tcp.example.org`, which no host is called.
fn is_of_services(host: &str) -> bool {
    host.starts_with('_') && (host.contains("._tcp.") || host.contains("._udp."))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::parse;

    #[track_caller]
    fn check(upstreams: &str, expected: &[&str]) {
        let shown = parse(&format!("upstreams: [{upstreams}]"), Path::new("x"));
        let shown = shown.map_or_else(|problems| problems.to_string(), |_| String::new());
        assert_eq!(shown.lines().map(|line| line.trim_start_matches("x:1: ")).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rows() {
        check("{name: a, url: 'http://gpus:8000', engine: vllm, data_parallel: 4, discover: dns}", &[]);
        check(
            "{name: a, url: 'http://gpus', engine: ollama, data_parallel: 0}",
            &[
                "upstreams[0].data_parallel: must be from 1 to 256",
                "upstreams[0].data_parallel: needs an engine whose ranks can be chosen; write engine: sglang or vllm",
            ],
        );
        check(
            "{name: a, url: 'http://gpus', data_parallel: 2}",
            &["upstreams[0].data_parallel: needs an engine whose ranks can be chosen; write engine: sglang or vllm"],
        );
        check(
            "{name: a, url: 'http://[::1]:80', discover: dns}",
            &["upstreams[0].discover: needs a host name in the URL; an address has no others behind it"],
        );
        check(
            "{name: a, url: 'http://_http._tcp.a'}, {name: b, url: 'https://_http._tcp.b', discover: srv}",
            &[
                "upstreams[0].url: its host is a name of SRV records; write `discover: srv` as well",
                "upstreams[1].url: no certificate is for a name of SRV records; write under `tls` the name that they \
                 are for, as `sni`",
            ],
        );
        check(
            "{name: a, url: 'https://_http._tcp.a', discover: srv, tls: {sni: a.test}}, {name: b, url: 'https://b', discover: srv}",
            &[],
        );
        check(
            "{name: a, url: 'http://a', tls: {insecure: true}}",
            &["upstreams[0].tls: needs a URL that begins with https"],
        );
    }

    #[test]
    fn nobody_is_named_like_somebody_s_row() {
        let named = "upstreams[1].name: is named like a row of a; choose another beginning";
        check("{name: a, url: 'http://a', discover: dns}, {name: a@x, url: 'http://b'}", &[named]);
        check("{name: a, url: 'http://a', engine: vllm, data_parallel: 2}, {name: a/7, url: 'http://b'}", &[named]);
        check("{name: a, url: 'http://a', discover: dns}, {name: ab@x, url: 'http://b'}", &[]);
        check("{name: a, url: 'http://a'}, {name: a/7, url: 'http://b'}", &[]);
    }
}

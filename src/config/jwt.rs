//! Tokens that name a tenant: whose are believed, and where the keys are that they are signed with.
//!
//! The keys stand in a file, which is read with the configuration, or at a URL, which is asked later. A token
//! made for somebody else must not pass here, so its issuer or its audience is always looked at.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::file;
use super::jwks::{JWKS_BYTES_MAX, SigningKeys};
use super::problem::Report;
use super::tls::Tls;
use super::upstream_url::UpstreamUrl;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Jwt {
    pub jwks: Jwks,
    /// Who must have made a token; `None` only where `audience` is there.
    pub issuer: Option<String>,
    /// For whom it must be made; `None`: for anybody.
    pub audience: Option<String>,
    /// Whose value is the name of a tenant.
    pub claim: String,
}

/// Where the keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Jwks {
    File { path: PathBuf, keys: SigningKeys },
    Url(JwksUrl),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwksUrl {
    pub server: UpstreamUrl,
    /// With its query.
    pub path: String,
    /// Who may have signed its certificate; `None`: whom this machine trusts.
    pub ca: Option<Box<Tls>>,
}

const TEXT_BYTES_MAX: usize = 1024;

const FORM: &str = "a file, or a URL like https://idp.example.org/keys";

impl Jwt {
    /// Always some, so that nobody is told to leave out what is only written wrongly.
    pub fn of(written: file::Jwt, folder: &Path, report: &mut Report) -> Option<Jwt> {
        if written.issuer.is_none() && written.audience.is_none() {
            let hint = "write `issuer`, `audience` or both; else tokens made for others would pass here";
            report.add("jwt", "takes tokens of anybody for anybody", hint);
        }
        if written.claim.is_none() {
            report.add_missing("jwt.claim", "the claim whose value is the name of a tenant");
        }
        for (key, text) in [("issuer", &written.issuer), ("audience", &written.audience), ("claim", &written.claim)] {
            if text.as_ref().is_some_and(|text| !(1..=TEXT_BYTES_MAX).contains(&text.len())) {
                report.add(format!("jwt.{key}"), format!("must be 1 to {TEXT_BYTES_MAX} bytes"), "");
            }
        }
        let ca = written.ca.map(|file| folder.join(file));
        let jwks = Jwks::of(written.jwks, ca.as_deref(), folder, report);
        let claim = written.claim.unwrap_or_default();
        Some(Jwt { jwks, issuer: written.issuer, audience: written.audience, claim })
    }

    /// For people.
    pub fn summary(&self) -> String {
        let issuer = self.issuer.as_ref().map_or("anybody".into(), |issuer| format!("\"{issuer}\""));
        let audience = self.audience.as_ref().map_or("ANYBODY".into(), |audience| format!("\"{audience}\""));
        let over = match &self.jwks {
            Jwks::Url(url) if !url.server.tls => ", fetched without TLS: whoever is in between can be every tenant",
            _ => "",
        };
        format!("by {issuer} for {audience}, tenant in `{}`; keys of {}{over}", self.claim, self.jwks)
    }
}

impl Jwks {
    fn of(written: Option<String>, ca: Option<&Path>, folder: &Path, report: &mut Report) -> Jwks {
        let Some(written) = written.filter(|written| !written.is_empty()) else {
            report.add_missing("jwt.jwks", FORM);
            return Jwks::File { path: PathBuf::new(), keys: SigningKeys::default() };
        };
        if written.contains("://") {
            return match JwksUrl::of(&written) {
                Ok(url) => Jwks::Url(url.believing(ca, report)),
                Err(why) => {
                    report.add("jwt.jwks", why, FORM);
                    Jwks::File { path: PathBuf::new(), keys: SigningKeys::default() }
                }
            };
        }
        if ca.is_some() {
            report.add("jwt.ca", "is of use for a URL only, and `jwt.jwks` is a file", "leave it out");
        }
        let path = folder.join(&written);
        let text = report.files.read(&path, JWKS_BYTES_MAX).map_err(|error| format!("cannot be read: {error}"));
        let keys = text.and_then(|text| SigningKeys::of(&text)).unwrap_or_else(|why| {
            report.add("jwt.jwks", format!("the file {why}"), "it is what the issuer shows under `jwks_uri`");
            SigningKeys::default()
        });
        Jwks::File { path, keys }
    }
}

impl JwksUrl {
    fn of(text: &str) -> Result<JwksUrl, &'static str> {
        let (place, query) = text.split_once('?').map_or((text, None), |(place, query)| (place, Some(query)));
        let server: UpstreamUrl = place.parse()?;
        let path = place.split_once("://").and_then(|(_, rest)| rest.find('/').and_then(|at| rest.get(at..)));
        let path = [path.unwrap_or("/"), query.map_or("", |_| "?"), query.unwrap_or("")].concat();
        if path.contains('#') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("not a URL");
        }
        Ok(JwksUrl { server: UpstreamUrl { path: String::new(), ..server }, path, ca: None })
    }

    fn believing(mut self, ca: Option<&Path>, report: &mut Report) -> JwksUrl {
        let Some(file) = ca else { return self };
        if !self.server.tls {
            report.add(
                "jwt.ca",
                "checks nothing where `jwt.jwks` is fetched without TLS",
                "write https, or leave it out",
            );
        }
        match Tls::with_authorities(file, &mut report.files) {
            Ok(tls) => self.ca = Some(Box::new(tls)),
            Err(why) => report.add("jwt.ca", why, "it must be a file in PEM form"),
        }
        self
    }
}

impl fmt::Display for Jwks {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Jwks::File { path, .. } => path.display().fmt(f),
            Jwks::Url(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{}", self.server, self.path)
    }
}

impl Serialize for Jwks {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{Files, parse};

    const KEYS: &str =
        r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    #[track_caller]
    fn check(jwt: &str, expected: &[&str]) {
        let folder = crate::config::tls::tests::folder();
        fs::write(folder.path().join("keys.json"), KEYS).unwrap();
        let origin = folder.path().join("x.yaml");
        let shown = parse(&format!("tenants: [{{name: a}}]\njwt: {jwt}\n"), &origin);
        let shown = shown.map_or_else(|problems| problems.to_string(), |_| String::new());
        let shown = shown.replace(&format!("{}:2: jwt", origin.display()), "");
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "{jwt}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        check("{jwks: keys.json, issuer: x, claim: tenant}", &[]);
        check("{jwks: 'https://idp.example.org/keys?p=1', audience: x, claim: tenant}", &[]);
        check("{jwks: 'https://idp.example.org/keys', ca: good.crt, issuer: x, claim: tenant}", &[]);
        check(
            "{jwks: 'https://idp.example.org/keys', ca: text, issuer: x, claim: tenant}",
            &[".ca: holds no certificate; it must be a file in PEM form"],
        );
        check(
            "{jwks: 'http://idp.example.org/keys', ca: good.crt, issuer: x, claim: tenant}",
            &[".ca: checks nothing where `jwt.jwks` is fetched without TLS; write https, or leave it out"],
        );
        check(
            "{jwks: keys.json, ca: good.crt, issuer: x, claim: tenant}",
            &[".ca: is of use for a URL only, and `jwt.jwks` is a file; leave it out"],
        );
        check(
            "{jwks: keys.json, claim: tenant}",
            &[
                ": takes tokens of anybody for anybody; write `issuer`, `audience` or both; else tokens made for others would pass here",
            ],
        );
        check(
            "{issuer: ''}",
            &[
                ".claim: missing; the claim whose value is the name of a tenant",
                ".issuer: must be 1 to 1024 bytes",
                ".jwks: missing; a file, or a URL like https://idp.example.org/keys",
            ],
        );
        check(
            "{jwks: text, issuer: x, claim: c}",
            &[
                ".jwks: the file is not a JWKS, which is JSON with a list `keys`; it is what the issuer shows under `jwks_uri`",
            ],
        );
        check("{jwks: 'ftp://x/y', issuer: x, claim: c}", &[&format!(".jwks: only http and https are spoken; {FORM}")]);
    }

    #[test]
    fn a_url_keeps_its_path_and_query() {
        let check = |text: &str, expected: Result<&str, ()>| {
            let read = JwksUrl::of(text).map(|url| url.to_string()).map_err(|_| ());
            assert_eq!(read.as_deref().map_err(|_| ()), expected, "{text}");
        };
        check("https://idp.example.org", Ok("https://idp.example.org:443/"));
        check("https://idp.example.org/a/v1?p=b/c", Ok("https://idp.example.org:443/a/v1?p=b/c"));
        check("http://127.0.0.1:99/keys", Ok("http://127.0.0.1:99/keys"));
        check("https://me:pass@idp.example.org/keys", Err(()));
        check("https://idp.example.org/keys?a#b", Err(()));
        check("https://idp.example.org/keys?a b", Err(()));
    }

    #[test]
    fn tokens_need_tenants_and_their_file_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let origin = folder.path().join("x.yaml");
        fs::write(folder.path().join("keys.json"), KEYS).unwrap();
        let jwt = "jwt: {jwks: keys.json, issuer: x, claim: tenant}";
        assert!(parse(jwt, &origin).is_err_and(|why| why.to_string().contains("names tenants, and there are none")));
        fs::write(&origin, format!("{jwt}\ntenants: [{{name: a}}]")).unwrap();
        let mut files = Files::default();
        let before = crate::config::load_noting(&origin, &mut files).unwrap();
        fs::write(folder.path().join("keys.json"), KEYS.replace("11q", "12q")).unwrap();
        assert!(files.have_changed());
        let changes = crate::config::changes(&before, &crate::config::load(&origin).unwrap());
        assert_eq!(changes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["jwt.jwks: changed"]);
    }
}

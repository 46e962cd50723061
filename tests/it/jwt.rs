//! Tokens in place of keys: whose are believed, with keys from a file and from a URL.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use crate::client::Request;
use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::rig::node;
use crate::talk::{Dialect, Talk};
use crate::tenants::{by, tenants};
use crate::tls::{Authority, front};
use crate::upstream::{Polls, Upstream};

/// A key of an issuer, under its name.
struct Signer {
    id: &'static str,
    pair: EcdsaKeyPair,
}

fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    fn new(id: &'static str) -> Signer {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pair = EcdsaKeyPair::generate_pkcs8(kind, &random).expect("a key");
        Signer { id, pair: EcdsaKeyPair::from_pkcs8(kind, pair.as_ref(), &random).expect("the key") }
    }

    /// The set of keys in which this one is.
    fn set(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (base64(&point[1..33]), base64(&point[33..]));
        json!({"keys": [{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id, "x": x, "y": y}]})
    }

    fn token(&self, tenant: &str, lasts_s: i64) -> String {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs() as i64;
        let claims = json!({"iss": "https://idp.test", "aud": "warmgate", "exp": now_s + lasts_s, "team": tenant});
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": self.id});
        let message = format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).expect("a signature");
        format!("{message}.{}", base64(signature.as_ref()))
    }
}

/// Two tenants, the first without a key of its own, and tokens signed by the keys at `jwks`.
fn settings(node: &Upstream, jwks: &str) -> Settings {
    let jwt = format!("jwt: {{jwks: \"{jwks}\", issuer: \"https://idp.test\", audience: warmgate, claim: team}}\n");
    let tenants = tenants(&[("keyed", "")]);
    Settings::over(&[node]).more(&jwt).more(&format!("{tenants}  - {{name: research, limits: {{rpm: 100}}}}\n"))
}

fn ask(token: &str) -> Request {
    Talk::about(Dialect::OpenAi, "moss").ask().header("Authorization", &format!("Bearer {token}"))
}

async fn status(gate: &Gate, token: &str) -> u16 {
    let mut reply = gate.send(&ask(token)).await;
    reply.whole().await;
    reply.status
}

fn count(name: &str, label: &str, value: &str) -> String {
    format!("{name}{{{label}=\"{value}\"}}")
}

#[tokio::test]
async fn a_token_is_its_tenant_and_a_bad_one_is_nobody() {
    let (n1, signer, folder) = (node("n1").await, Signer::new("one"), tempfile::tempdir().expect("a folder"));
    let jwks = folder.path().join("jwks.json");
    std::fs::write(&jwks, signer.set().to_string()).expect("the keys");
    let gate = Gate::start(&settings(&n1, &jwks.display().to_string()).logging("trace")).await;
    let token = signer.token("research", 3600);

    let mut said = String::new();
    for _ in 0..2 {
        let mut reply = gate.send(&ask(&token)).await;
        assert_eq!((reply.status, reply.header("x-ratelimit-limit-requests")), (200, Some("100")));
        said += &String::from_utf8_lossy(&reply.whole().await);
        assert_eq!(gate.receipt(reply.request_id()).await["tenant"], "research");
    }
    let mut keyed = gate.send(&by("keyed", Talk::about(Dialect::OpenAi, "moss").ask())).await;
    keyed.whole().await;
    assert_eq!(gate.receipt(keyed.request_id()).await["tenant"], "keyed");
    for n in 0..n1.count() {
        assert!(n1.request(n).await.head.get("authorization").is_none(), "no token is sent on");
    }

    let bad = [
        (signer.token("research", -3600), "token_expired"),
        (signer.token("nobody", 3600), "token_no_tenant"),
        (Signer::new("one").token("research", 3600), "token_signature"),
        (Signer::new("two").token("research", 3600), "token_signer"),
    ];
    for (token, reason) in &bad {
        for path in ["/api/chat", "/v1/chat/completions", "/v1/messages"] {
            let request = Request::post(path, "{}").header("Authorization", &format!("Bearer {token}"));
            let mut reply = gate.send(&request).await;
            assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")), "{reason}");
            let body = reply.json().await.to_string();
            assert!(body.contains("this token"), "{body}");
            said += &body;
        }
        assert_eq!(gate.counter(&count("warmgate_keys_refused_total", "reason", reason)).await, 3.0, "{reason}");
    }
    let all = [said, gate.metrics().await, gate.status().await.to_string(), gate.log_of(3 * bad.len()).await];
    for token in bad.iter().map(|(token, _)| token).chain([&token]) {
        let signature = token.rsplit('.').next().expect("a signature");
        assert!(all.iter().all(|said| !said.contains(signature)), "no token is told or logged");
    }
}

#[tokio::test]
async fn another_file_of_keys_is_believed_at_once_and_a_bad_one_never() {
    let (n1, folder) = (node("n1").await, tempfile::tempdir().expect("a folder"));
    let [old, new] = [Signer::new("old"), Signer::new("new")];
    let jwks = folder.path().join("jwks.json");
    let put = |text: String| {
        std::fs::write(folder.path().join("beside"), text).expect("the keys");
        std::fs::rename(folder.path().join("beside"), &jwks).expect("in place");
    };
    put(old.set().to_string());
    let gate = Gate::start(&settings(&n1, &jwks.display().to_string())).await;
    let [of_old, of_new] = [&old, &new].map(|signer| signer.token("research", 3600));
    assert_eq!([status(&gate, &of_old).await, status(&gate, &of_new).await], [200, 401]);

    put(new.set().to_string());
    let reloads = gate.reloads(1).await;
    assert_eq!((&reloads[0]["outcome"], &reloads[0]["cause"]), (&json!("applied"), &json!("file")));
    assert_eq!(reloads[0]["changes"][0]["key"], "jwt.jwks");
    assert_eq!([status(&gate, &of_old).await, status(&gate, &of_new).await], [401, 200], "what was remembered is gone");

    put("{}".into());
    assert_eq!(gate.reloads(2).await[0]["outcome"], "refused");
    assert_eq!(status(&gate, &of_new).await, 200);
}

#[tokio::test]
async fn keys_of_a_url_are_fetched_kept_and_asked_for_once_when_one_is_unknown() {
    let (n1, idp) = (node("n1").await, Upstream::openai("idp", Vec::new()).await);
    let [old, new, never] = [Signer::new("old"), Signer::new("new"), Signer::new("never")];
    let [of_old, of_new, of_never] = [&old, &new, &never].map(|signer| signer.token("research", 3600));
    let fetches = |outcome: &str| count("warmgate_jwks_fetches_total", "outcome", outcome);
    idp.set_keys(old.set());
    idp.set_polls(Polls::Failing);
    let gate = Gate::start(&settings(&n1, &format!("{}/keys", idp.url()))).await;

    let mut reply = gate.send(&ask(&of_old)).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("2")));
    assert!(reply.json().await.to_string().contains("being fetched"));
    assert!(gate.counter(&fetches("failed")).await >= 1.0 && gate.log().contains("it answers 500"));
    let mut keyed = gate.send(&by("keyed", Talk::about(Dialect::OpenAi, "moss").ask())).await;
    keyed.whole().await;
    assert_eq!(keyed.status, 200, "keys need no issuer");

    idp.set_polls(Polls::Answered);
    gate.write(&settings(&n1, &format!("{}/keys?p=2", idp.url())));
    gate.reload().await;
    becomes(&gate, &of_old, 200).await;
    assert!(idp.polls().contains(&"GET /keys?p=2".to_owned()));

    idp.set_keys(new.set());
    assert_eq!(status(&gate, &of_new).await, 503, "it may be among those that are fetched now");
    becomes(&gate, &of_new, 200).await;
    assert_eq!(status(&gate, &of_old).await, 401, "the issuer has taken that key away");
    let asked = idp.polls().len();
    for _ in 0..3 {
        assert_eq!(status(&gate, &of_never).await, 401);
    }
    assert_eq!(idp.polls().len(), asked, "not asked again within a minute");
}

/// Returns once requests with that token are answered so.
async fn becomes(gate: &Gate, token: &str, wanted: u16) {
    let answered = async {
        while status(gate, token).await != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(&format!("answers with {wanted}"), answered).await;
}

#[tokio::test]
async fn keys_come_from_a_url_of_the_house_s_own_authority_and_their_state_is_shown() {
    let (node, idp, signer) = (node("n1").await, node("idp").await, Signer::new("k1"));
    idp.set_keys(signer.set());
    let authority = Authority::new("ours");
    let port = front(&idp, authority.signs("localhost", 2090), None).await;
    let url = format!("https://localhost:{port}/keys");
    let with_ca = format!("{url}\", ca: \"{}", authority.file().display());
    for (jwks, is_believed) in [(&with_ca, true), (&url, false)] {
        let gate = Gate::start(&settings(&node, jwks)).await;
        let state = within("the keys to be fetched, or not", async {
            loop {
                let state = gate.status().await["jwt"].clone();
                if state["keys"] == 1 || !state["last_error"].is_null() {
                    break state;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert_eq!(state["jwks"], json!(url));
        assert_eq!(status(&gate, &signer.token("research", 60)).await, if is_believed { 200 } else { 503 }, "{state}");
        assert_eq!(state["age_s"].is_u64(), is_believed, "{state}");
        let error = state["last_error"].as_str().unwrap_or_default();
        assert_eq!(error.contains("tls error"), !is_believed, "{state}");
    }
}

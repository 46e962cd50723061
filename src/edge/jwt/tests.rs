//! Which tokens are believed, and what a client whose token is not is told.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use super::*;

/// An RSA key whose private part is gone.
const RSA_N: &str = concat!(
    "r_5cbUF2nFOJYZXq6i-07y3JY3Kzet4ETAEuOAvCJH2Dy68Tuxg1ENkQ7QCJDJF3_XQHl6kJYXbx-VMhGt6KGobTCKJ489Lnxn7N",
    "xJDEzQgpqRbv4Psj8DpCGibavFt9rYIVeTSgGbUPHA7cpgq8vdXgfc98wGZAmB3_pzsH449E_g9f3gz2-1PYPIe-rvmc14Bc2p9S",
    "6-NoDuIHsU7njmiJwz6RgVCTWO7_pq-FO3puOMFNejlFVi6oN8hdCvcPf4ufwwxl6y6d00r1X5LrqI0sA9lyhMLtRTL7ZBPDOLDK",
    "ne4NojCOFx6n1BgfqhAkBf_mNuswu_PieYI-eoPQgw",
);

/// What it signed once: `rsa_claims`, under the header `{alg, kid}`.
const RS256: &str = concat!(
    "EAr_Zymz3WvHQ2NsU_R4GdAbw3I3YFGF4BIhhd1fEgGk60be8g9Privf7d-bP29ZOKRypBmlK3lGmFIQzOmshTX9i2Np0NaCxlth",
    "PcG8DSY5eCS9VWvkwEzE3y3M7EmRuoW9hejy9WsxWACCqq_Fq7zKwhQrdq1Dk7WAAiQkLV8Xp61cSGmGl3PZIOXgSkaFuo6NgPzs",
    "FbKUDqWAqa94XcPf2hYnQDaytz1jEUH_w4LoYa0JoRVz8WFKkzBk5_vN2U2938aJ4mcdi2ly5yQJ3XV1JngU8zgluFuoTPXEUkDJ",
    "1FwTTjnA1nVO4trrdghK4NbjznqWKC5LTvVNDCWe4A",
);

/// The same the other way.
const PS256: &str = concat!(
    "rvgw3_0b0BLaQNizaw2YeQwlRMhrBPzzbjp68w4Gra3NTNkL9TEt6HbHem3QY4-BmkfcOJfL2nwvkUfLM9NGtcryz3YL0CVN-4Hb",
    "SrYMn_QUJEWqo7cSt3b564hmaqG8GYVPEgzqszW2-WgoNdpKN9muyo1FKpoM6CFjh039LI22F8msF5-3UlXYk0b5FXFTwwpsViqh",
    "lEdRli4IjAgtHsEiArxr9ArqPSywnn_-fIp6ufnn4GRcYuhlVVIguF7R-a6mk_9V--hi3DlRbFVkbO0DylRUVsMo3DS9Ki1-ngDe",
    "9el6chKwqWqFQTrXMJyxR8Opd9cjZbB9Xv5bBe-Sng",
);

/// An issuer with a key of each kind.
pub struct Issuer {
    p256: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
}

impl Issuer {
    pub fn new() -> Issuer {
        let random = SystemRandom::new();
        let p256 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Issuer {
            p256: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, p256.as_ref(), &random).unwrap(),
            ed25519: Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).unwrap(),
        }
    }

    pub fn keys(&self) -> SigningKeys {
        let point = self.p256.public_key().as_ref();
        let set = json!({"keys": [
            {"kty": "EC", "crv": "P-256", "kid": "p256", "x": base64(&point[1..33]), "y": base64(&point[33..])},
            {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": base64(self.ed25519.public_key().as_ref())},
            {"kty": "RSA", "kid": "rsa", "n": RSA_N, "e": "AQAB"},
        ]});
        SigningKeys::of(set.to_string().as_bytes()).unwrap()
    }

    /// Signed by the key that `signer` names, whatever the header says.
    fn signs(&self, signer: &str, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let bytes = message.as_bytes();
        let signature = match signer {
            "p256" => self.p256.sign(&SystemRandom::new(), bytes).unwrap().as_ref().to_vec(),
            _ => self.ed25519.sign(bytes).as_ref().to_vec(),
        };
        format!("{message}.{}", base64(&signature))
    }

    pub fn token(&self, claims: &Value) -> String {
        self.signs("ed", &json!({"alg": "EdDSA", "kid": "ed"}), claims)
    }
}

fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()))
}

pub fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Good claims but for these; `null` takes one away.
pub fn claims(changed: Value) -> Value {
    let mut claims =
        json!({"iss": "https://idp.test", "aud": "warmgate", "exp": now_s() + 3600, "tenant": "a", "sub": "ada"});
    let all = claims.as_object_mut().unwrap();
    for (name, value) in changed.as_object().unwrap().clone() {
        if value.is_null() {
            all.remove(&name)
        } else {
            all.insert(name, value)
        };
    }
    claims
}

pub fn jwt(jwks: Jwks) -> Jwt {
    Jwt { jwks, issuer: Some("https://idp.test".into()), audience: Some("warmgate".into()), claim: "tenant".into() }
}

fn file(keys: SigningKeys) -> Jwks {
    Jwks::File { path: "keys.json".into(), keys }
}

/// The tenant of a token, or the name of what is wrong with it; empty where it is taken for no token.
fn found(tokens: &Tokens, token: &str) -> String {
    match tokens.tenant_of(token) {
        None => String::new(),
        Some(Ok(tenant)) => tenant.to_string(),
        Some(Err(Refusal::BadToken(fault))) => fault.name().into(),
        Some(Err(refusal)) => format!("{} after {:?} s", refusal.status(), refusal.retry_after_s()),
    }
}

#[test]
fn a_claim_that_is_not_as_it_must_be_is_refused() {
    let issuer = Issuer::new();
    let tokens = Tokens::of(Some(&jwt(file(issuer.keys()))));
    let check = |changed: Value, expected: &str| {
        assert_eq!(found(&tokens, &issuer.token(&claims(changed.clone()))), expected, "{changed}");
    };
    let now_s = now_s();
    check(json!({}), "a");
    check(json!({"exp": now_s - 3600}), "token_expired");
    check(json!({"exp": now_s - 5}), "a");
    check(json!({"exp": null}), "token_claims");
    check(json!({"exp": "tomorrow"}), "token_claims");
    check(json!({"exp": -1}), "token_claims");
    check(json!({"exp": now_s as f64 + 3600.5}), "a");
    check(json!({"nbf": now_s + 3600}), "token_not_yet");
    check(json!({"nbf": now_s + 5}), "a");
    check(json!({"nbf": "later"}), "token_claims");
    check(json!({"iss": "https://other.test"}), "token_issuer");
    check(json!({"iss": null}), "token_claims");
    check(json!({"aud": "other"}), "token_audience");
    check(json!({"aud": ["other", "warmgate"]}), "a");
    check(json!({"aud": []}), "token_audience");
    check(json!({"aud": null}), "token_claims");
    check(json!({"tenant": null}), "token_no_tenant");
    check(json!({"tenant": ["a"]}), "token_no_tenant");
}

#[test]
fn without_an_audience_only_the_issuer_counts() {
    let issuer = Issuer::new();
    let tokens = Tokens::of(Some(&Jwt { audience: None, ..jwt(file(issuer.keys())) }));
    assert_eq!(found(&tokens, &issuer.token(&claims(json!({"aud": "other"})))), "a");
    assert_eq!(found(&tokens, &issuer.token(&claims(json!({"iss": "other"})))), "token_issuer");
}

#[test]
fn rsa_signatures_are_checked_both_ways() {
    let tokens = Tokens::of(Some(&jwt(file(Issuer::new().keys()))));
    let claims = r#"{"iss":"https://idp.test","aud":"warmgate","exp":4102444800,"tenant":"a"}"#;
    let token = |algorithm: &str, signature: &str| {
        let header = format!(r#"{{"alg":"{algorithm}","kid":"rsa"}}"#);
        format!("{}.{}.{signature}", base64(header.as_bytes()), base64(claims.as_bytes()))
    };
    assert_eq!(found(&tokens, &token("RS256", RS256)), "a");
    assert_eq!(found(&tokens, &token("PS256", PS256)), "a");
    assert_eq!(found(&tokens, &token("RS256", PS256)), "token_signature");
    assert_eq!(found(&tokens, &token("RS512", RS256)), "token_signature");
    assert_eq!(found(&tokens, &token("ES256", RS256)), "token_algorithm");
}

#[test]
fn no_algorithm_is_believed_that_the_key_is_not_for() {
    let issuer = Issuer::new();
    let tokens = Tokens::of(Some(&jwt(file(issuer.keys()))));
    let good = claims(json!({}));
    let signed = |signer: &str, header: Value| found(&tokens, &issuer.signs(signer, &header, &good));
    assert_eq!(signed("p256", json!({"alg": "ES256", "kid": "p256"})), "a");
    assert_eq!(signed("p256", json!({"alg": "ES384", "kid": "p256"})), "token_algorithm");
    assert_eq!(signed("ed", json!({"alg": "ES256", "kid": "p256"})), "token_signature");
    assert_eq!(signed("ed", json!({"alg": "RS256", "kid": "ed"})), "token_algorithm");
    assert_eq!(signed("ed", json!({"alg": "EdDSA", "kid": "nobody"})), "token_signer");
    assert_eq!(signed("ed", json!({"alg": "EdDSA"})), "token_signer");
    assert_eq!(signed("ed", json!({"alg": "EdDSA", "kid": "ed", "crit": ["x"], "x": 1})), "token_unreadable");
    // A key that the token brings along proves nothing.
    let own = json!({"kty": "OKP", "crv": "Ed25519", "x": base64(&[7; 32])});
    let stranger = Issuer::new().signs("ed", &json!({"alg": "EdDSA", "kid": "ed", "jwk": own}), &good);
    assert_eq!(found(&tokens, &stranger), "token_signature");

    for none in ["none", "None", "NONE", "nOnE"] {
        let message = message(&json!({"alg": none, "kid": "ed"}), &good);
        assert_eq!(found(&tokens, &format!("{message}.")), "token_unreadable", "{none}");
    }
    assert_eq!(
        found(&tokens, &format!("{}.", message(&json!({"alg": "EdDSA", "kid": "ed"}), &good))),
        "token_signature"
    );
    // What is public taken for a secret: the modulus as it is written, as it is, and the point of another key.
    let modulus = URL_SAFE_NO_PAD.decode(RSA_N).unwrap();
    for (kid, secret) in [("rsa", RSA_N.as_bytes()), ("rsa", &modulus), ("ed", issuer.ed25519.public_key().as_ref())] {
        let message = message(&json!({"alg": "HS256", "kid": kid}), &good);
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret), message.as_bytes());
        assert_eq!(found(&tokens, &format!("{message}.{}", base64(tag.as_ref()))), "token_algorithm", "{kid}");
    }
}

#[test]
fn what_is_no_token_is_a_key_and_garbage_is_garbage() {
    let issuer = Issuer::new();
    let tokens = Tokens::of(Some(&jwt(file(issuer.keys()))));
    let good = issuer.token(&claims(json!({})));
    for key in ["", "sk-1", "a.b", "a.b.c.d", "..", ".b.c", "a..c", "a.b c.d", "a.b.c=", "\u{e9}.b.c"] {
        assert_eq!(found(&tokens, key), "", "{key}");
    }
    let [header, rest] = [good.split_once('.').unwrap().0, good.split_once('.').unwrap().1];
    let odd = base64(b"{\"alg\":\"EdDSA\",\"kid\":7}");
    for garbage in ["a.b.c".to_owned(), format!("{odd}.{rest}"), format!("{}.{rest}", base64(&[0xff; 40]))] {
        assert_eq!(found(&tokens, &garbage), "token_unreadable", "{garbage}");
    }
    let other = issuer.token(&claims(json!({"tenant": "b"})));
    let mixed = format!("{header}.{}.{}", other.split('.').nth(1).unwrap(), good.rsplit('.').next().unwrap());
    assert_eq!(found(&tokens, &mixed), "token_signature");
    for cut in 0..good.len() {
        assert_ne!(found(&tokens, &good[..cut]), "a");
    }
    let large = |bytes: usize| issuer.token(&claims(json!({"groups": "x".repeat(bytes)})));
    assert_eq!(found(&tokens, &large(8_000)), "a");
    assert_eq!(found(&tokens, &large(100_000)), "token_too_long");
    assert_eq!(found(&Tokens::default(), &good), "", "where no tokens are taken it is a key like any other");
}

fn url(path: &str) -> JwksUrl {
    JwksUrl { server: "http://127.0.0.1:9".parse().unwrap(), path: path.into(), ca: None }
}

#[test]
fn keys_of_a_url_are_waited_for_and_kept() {
    let (issuer, stranger) = (Issuer::new(), Issuer::new());
    let at = |path: &str| jwt(Jwks::Url(url(path)));
    let tokens = Tokens::of(Some(&at("/keys")));
    let token = issuer.token(&claims(json!({})));
    assert_eq!(found(&tokens, &token), "503 after Some(2) s");
    tokens.looked(Some(&url("/keys")), None);
    assert_eq!(found(&tokens, &token), "503 after Some(2) s");
    tokens.looked(Some(&url("/others")), Some(stranger.keys()));
    assert_eq!(found(&tokens, &token), "503 after Some(2) s", "those of another URL");
    tokens.looked(Some(&url("/keys")), Some(issuer.keys()));
    assert_eq!(found(&tokens, &token), "a");

    tokens.looked(Some(&url("/keys")), None);
    assert_eq!(found(&tokens, &token), "a", "a look that fails takes nothing away");
    tokens.renew(Some(&Jwt { claim: "sub".into(), ..at("/keys") }));
    assert_eq!(found(&tokens, &token), "ada", "the keys stay, what was remembered does not");
    tokens.renew(Some(&at("/others")));
    assert_eq!(found(&tokens, &token), "503 after Some(2) s");
    tokens.renew(None);
    assert_eq!(found(&tokens, &token), "");
}

#[test]
fn an_unknown_key_makes_us_look_once_a_minute() {
    let issuer = Issuer::new();
    let tokens = Tokens::of(Some(&jwt(Jwks::Url(url("/keys")))));
    tokens.looked(Some(&url("/keys")), Some(issuer.keys()));
    let due = || tokens.due().saturating_duration_since(Instant::now());
    assert!(due() > FETCH_AGAIN);
    let unknown = issuer.signs("ed", &json!({"alg": "EdDSA", "kid": "new"}), &claims(json!({})));

    assert_eq!(found(&tokens, &unknown), "503 after Some(2) s");
    assert_eq!(due(), Duration::ZERO);
    assert_eq!(found(&tokens, &unknown), "503 after Some(2) s", "until the look is over");
    tokens.looked(Some(&url("/keys")), Some(issuer.keys()));
    assert_eq!(found(&tokens, &unknown), "token_signer");
    assert!(due() > FETCH_AGAIN, "and not another one");
    assert!(!tokens.looks_for_unknown(Instant::now()));
    assert!(tokens.looks_for_unknown(Instant::now() + FETCH_FOR_UNKNOWN_EVERY));
}

#[test]
fn no_message_says_what_is_configured() {
    let issuer = Issuer::new();
    let tokens = Tokens::of(Some(&jwt(file(issuer.keys()))));
    for changed in [json!({"iss": "evil.test"}), json!({"aud": "evil.test"}), json!({"exp": 1}), json!({"tenant": 1})] {
        let token = issuer.token(&claims(changed));
        let refusal = tokens.tenant_of(&token).unwrap().unwrap_err();
        let said = format!("{} {refusal:?}", refusal.message());
        assert_eq!(refusal.status(), 401);
        for secret in ["idp.test", "evil.test", &token, token.rsplit('.').next().unwrap()] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

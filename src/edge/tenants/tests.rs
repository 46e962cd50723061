//! Whose request it is, and what stays when the configuration changes.

use super::*;
use crate::config::TenantLimits;
use crate::edge::ingress::Ingress;

fn tenant(name: &str, keys: &[&str], rpm: Option<u32>) -> config::Tenant {
    config::Tenant {
        name: name.into(),
        keys: keys.iter().map(|key| KeyHash::of(key)).collect(),
        models: None,
        limits: TenantLimits { rpm, ..TenantLimits::default() },
        priority: Priority::default(),
        management: false,
        cache_salt: false,
    }
}

fn plan(tenants: Vec<config::Tenant>) -> Plan {
    Plan { tenants, ..Plan::default() }
}

fn who(tenants: &Tenants, headers: &[(&'static str, &str)]) -> Result<Option<String>, u16> {
    let mut head = RequestHeader::build("POST", b"/api/chat", None).unwrap();
    for (name, value) in headers {
        head.append_header(*name, *value).unwrap();
    }
    let found = tenants.identify(&head, &Tokens::default()).map(|found| found.map(|tenant| tenant.name.clone()));
    found.map_err(|refusal| refusal.status())
}

#[test]
fn a_key_is_known_however_it_is_sent() {
    let tenants = Tenants::of(&plan(vec![tenant("a", &["key-a1", "key-a2"], None), tenant("b", &["key-b"], None)]));
    let a = Ok(Some("a".to_string()));
    let check = |headers: &[(&'static str, &str)], expected: &Result<Option<String>, u16>| {
        assert_eq!(&who(&tenants, headers), expected, "{headers:?}");
    };
    check(&[("authorization", "Bearer key-a1")], &a);
    check(&[("authorization", "bearer   key-a2 ")], &a);
    check(&[("x-api-key", "key-a1")], &a);
    check(&[("authorization", "Bearer dummy"), ("x-api-key", "key-a1")], &a);
    check(&[("authorization", "Bearer key-a2"), ("x-api-key", "key-a1")], &a);
    check(&[("authorization", "Bearer key-a1"), ("authorization", "Bearer key-a1")], &a);
    // Whose it is would be a matter of who reads first.
    check(&[("authorization", "Bearer key-b"), ("x-api-key", "key-a1")], &Err(400));
    check(&[("authorization", "Bearer key-a1"), ("authorization", "Bearer key-b")], &Err(400));
    check(&[("authorization", "Bearer key-a1"), ("authorization", "Bearer dummy")], &Err(400));
    check(&[("x-api-key", "key-a1"), ("x-api-key", "dummy")], &Err(400));
    for none in [&[][..], &[("authorization", "key-a1")], &[("authorization", "Bearer ")], &[("x-api-key", "")]] {
        check(none, &Err(401));
    }
    for unknown in ["Bearer key-c", "Bearer KEY-A1", "Bearer key-a", "Bearer key-a11"] {
        check(&[("authorization", unknown)], &Err(401));
    }
    check(&[("authorization", &format!("Bearer {}", KeyHash::of("key-a1").written()))], &Err(401));
    check(&[("authorization", &format!("Bearer {}", "x".repeat(5000)))], &Err(401));
}

#[test]
fn without_tenants_everything_is_open() {
    assert_eq!(who(&Tenants::of(&Plan::default()), &[]), Ok(None));
    assert_eq!(who(&Tenants::of(&Plan::default()), &[("x-api-key", "anything")]), Ok(None));
}

#[tokio::test]
async fn what_was_used_is_kept_by_name_through_a_change() {
    let plan_of = |tenants| Arc::new(Ingress::new(plan(tenants)).unwrap());
    let ingress = plan_of(vec![tenant("a", &["key-a"], Some(2)), tenant("b", &["key-b"], None)]);
    let before = ingress.tenants().named("a").unwrap().clone();
    let running = before.admit(0, &ingress).await.unwrap();
    ingress.metrics.tenants.request("b", crate::edge::verdict::Verdict::Ok);

    ingress.renew_tenants(&plan(vec![tenant("c", &["key-c"], None), tenant("a", &["key-a2"], Some(2))]));

    let tenants = ingress.tenants();
    let after = tenants.named("a").unwrap();
    assert_eq!(after.running(ingress.fleet.now()), 1);
    let _second = after.admit(0, &ingress).await.unwrap();
    assert_eq!(after.admit(0, &ingress).await.err().map(|refusal| refusal.status()), Some(429));
    running.settle(Used::Nothing);
    assert_eq!(after.running(ingress.fleet.now()), 1);
    assert!(after.admit(0, &ingress).await.is_ok());
    assert_eq!(who(&tenants, &[("x-api-key", "key-a")]), Err(401));
    assert_eq!(who(&tenants, &[("x-api-key", "key-a2")]), Ok(Some("a".into())));
    let text = String::from_utf8(ingress.metrics.text()).unwrap();
    assert!(!text.contains("tenant=\"b\""), "{text}");
}

#[tokio::test]
async fn a_request_that_is_dropped_gives_its_place_back() {
    let ingress = Arc::new(Ingress::new(plan(vec![tenant("a", &["key-a"], None)])).unwrap());
    let a = ingress.tenants().named("a").unwrap().clone();
    drop(a.admit(7, &ingress).await.unwrap());
    assert_eq!(a.to_json(ingress.fleet.now())["running"], 0);
    assert_eq!(a.to_json(ingress.fleet.now())["tokens_last_minute"], 7);
}

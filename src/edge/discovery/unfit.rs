//! Addresses at which no node can be, whoever says so.
//!
//! Nobody's address means this machine to the kernel, and Warmgate's own would have requests come back here. Other
//! addresses of this machine are not known; rounds over them end by the count of hops.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::config::Plan;

/// Why no node can be at that address; `None`: one can.
pub fn unfit(address: SocketAddr, plan: &Plan) -> Option<&'static str> {
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) || address.port() == 0 {
        return Some("leads to nobody");
    }
    let own = plan.listen.iter().map(|listen| listen.address).chain([plan.admin.address]);
    let mut own = own.filter(|own| own.port() == address.port());
    let is_own = own.any(|own| own.ip() == ip || own.ip().is_unspecified() && ip.is_loopback());
    is_own.then_some("leads to Warmgate itself")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Listen;

    #[track_caller]
    fn check(address: &str, expected: Option<&str>) {
        let mut plan = Plan { listen: vec![Listen::plain("0.0.0.0:8000".parse().unwrap())], ..Plan::default() };
        plan.admin.address = "127.0.0.1:9435".parse().unwrap();
        assert_eq!(unfit(address.parse().unwrap(), &plan), expected, "{address}");
    }

    #[test]
    fn nobody_and_ourselves() {
        for nobody in
            ["0.0.0.0:80", "[::]:80", "[::ffff:0.0.0.0]:80", "224.0.0.1:80", "255.255.255.255:80", "10.0.0.1:0"]
        {
            check(nobody, Some("leads to nobody"));
        }
        check("127.0.0.1:8000", Some("leads to Warmgate itself"));
        check("[::1]:8000", Some("leads to Warmgate itself"));
        check("127.0.0.1:9435", Some("leads to Warmgate itself"));
        for node in ["127.0.0.1:8001", "127.0.0.2:9435", "10.0.0.1:8000", "[fd00::1]:8000"] {
            check(node, None);
        }
    }
}

//! Who is believed when it says for whom it asks.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use super::problem::Report;
use super::read::{Read, Spot};

/// Networks of proxies and applications whose headers about users and addresses are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedPeers(pub Vec<IpNet>);

impl TrustedPeers {
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// This machine.
impl Default for TrustedPeers {
    fn default() -> TrustedPeers {
        TrustedPeers(vec![IpNet::from(IpAddr::from([127, 0, 0, 1]))])
    }
}

impl Serialize for TrustedPeers {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(ToString::to_string))
    }
}

/// A network, or an address alone.
impl Read for IpNet {
    fn read(at: Spot, report: &mut Report) -> Option<IpNet> {
        let written = at.node.scalar().unwrap_or_default();
        let alone = || written.parse::<IpAddr>().ok().map(IpNet::from);
        let network = written.parse::<IpNet>().ok().or_else(alone);
        if network.is_none() {
            let hint = "write it like 10.0.0.0/8, 192.168.1.7 or fd00::/8";
            report.add(at.path, format!("`{written}` is not a network"), hint);
        }
        network
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_networks_however_they_are_written() {
        let peers = TrustedPeers(["10.1.0.0/16", "fd00::/8"].map(|network| network.parse().unwrap()).into());
        let check = |address: &str, expected| assert_eq!(peers.trusts(address.parse().unwrap()), expected, "{address}");
        check("10.1.2.3", true);
        check("::ffff:10.1.2.3", true);
        check("10.2.0.1", false);
        check("fd00::1", true);
        check("fe80::1", false);
        assert!(TrustedPeers::default().trusts([127, 0, 0, 1].into()));
        assert!(!TrustedPeers::default().trusts([127, 0, 0, 2].into()));
    }
}

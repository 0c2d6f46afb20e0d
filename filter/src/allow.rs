//! Who is exempt from the limits of a rule.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::client_ip;
use crate::request::{Field, Request};
use crate::source::Source;

/// An entry of an allow-list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// Clients whose address is in one of these networks.
    Networks(Vec<IpNet>),
    /// Requests whose source has exactly one of these values.
    Values(Source, BTreeSet<Vec<u8>>),
}

impl Allow {
    /// Whether a request is exempt. One whose source has several values is not: it chose to be ambiguous.
    pub fn admits(&self, request: &Request<'_>) -> bool {
        match self {
            Self::Networks(networks) => request
                .client_address()
                .is_some_and(|address| networks.iter().any(|network| network.contains(&address))),
            Self::Values(source, values) => match source.read(request) {
                Field::One(value) => values.contains(value.as_ref()),
                Field::Missing | Field::Several => false,
            },
        }
    }
}

/// `192.0.2.0/24`, `2001:db8::/32`, or an address alone. What is accepted instead if it is not one, or could never hold
/// a client: an address is compared in its IPv4 form where it has one.
pub fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let Ok(network) = network else {
        return Err("a network, such as 192.0.2.0/24 or 2001:db8::/32, or an address".to_owned());
    };
    if network.trunc() != network {
        return Err(format!("a network without bits beyond its length, here {}", network.trunc()));
    }
    if client_ip::parse(network.addr().to_string().as_bytes()) != Some(network.addr()) {
        return Err("an IPv4 network, since clients with an IPv4 address are seen by that".to_owned());
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn networks_hold_every_form_of_an_address() {
        let networks = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"].map(|text| network(text).unwrap());
        let allow = Allow::Networks(networks.to_vec());
        for (address, expected) in [
            ("10.255.0.1:80", true),
            ("::ffff:10.1.2.3", true),
            ("64:ff9b::10.1.2.3", true),
            ("[2001:db8:ffff::1]:443", true),
            ("192.0.2.7:1", true),
            ("192.0.2.8:1", false),
            ("11.0.0.1:80", false),
            ("2001:db9::1", false),
            ("/run/a.sock", false),
            ("", false),
        ] {
            let property = |_: &[&str]| Some(address.as_bytes().to_vec());
            assert_eq!(allow.admits(&Request::new(&[], &property)), expected, "{address}");
        }
        assert!(!allow.admits(&Request::new(&[], &|_| None)));
    }

    #[test]
    fn values_are_compared_whole() {
        let allow =
            Allow::Values(Source::Header("k".to_owned()), ["a", "b"].map(|value| value.as_bytes().to_vec()).into());
        let admits = |values: &[&str]| {
            let headers: Vec<_> = values.iter().map(|value| (b"k".to_vec(), value.as_bytes().to_vec())).collect();
            allow.admits(&Request::new(&headers, &|_| None))
        };
        assert!(admits(&["a"]) && admits(&["b"]));
        assert!(!admits(&["A"]) && !admits(&["ab"]) && !admits(&[""]) && !admits(&[]));
        assert!(!admits(&["a", "b"]) && !admits(&["a", "a"]));
    }

    #[test]
    fn what_could_never_hold_a_client_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0.1/8", "a", "::ffff:10.0.0.0/104", "::ffff:10.0.0.1", "64:ff9b::/96"] {
            assert!(network(text).is_err(), "{text}");
        }
        assert!(network("0.0.0.0/0").is_ok() && network("::/0").is_ok());
    }
}

//! Addresses of clients, against the parsers of std and the networks of `ipnet`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use weir_filter::allow::{Allow, network};
use weir_filter::client_ip::{Prefix, key, parse};
use weir_filter::request::Request;

/// Two bytes for the prefixes, then an address or a network as text, or anything else.
pub fn holds(data: &[u8]) {
    let [ipv4, ipv6, text @ ..] = data else { return };
    let prefix = Prefix { ipv4: ipv4 % 32 + 1, ipv6: ipv6 % 128 + 1 };
    let parsed = parse(text);
    if let Ok(text) = std::str::from_utf8(text) {
        let by_std = text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
        if let Some(address) = by_std {
            assert_eq!(parsed, Some(as_ipv4(address)), "{text:?}");
        }
        networks(text);
    }
    if let Some(address) = parsed {
        spellings(address);
        prefixes(address, prefix);
    }
}

/// The IPv4 address in one that is mapped (RFC 4291) or translated (RFC 6052); others are themselves.
fn as_ipv4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => address,
    }
}

/// Every way to write an address is that address.
fn spellings(address: IpAddr) {
    assert_eq!(as_ipv4(address), address, "an IPv4 address in IPv6 form");
    let mut spellings = vec![address.to_string(), format!("{address}%eth0")];
    match address {
        IpAddr::V4(v4) => spellings.extend([
            format!("{v4}:1"),
            format!("::ffff:{v4}"),
            format!("[::FFFF:{v4}]:65535"),
            format!("64:ff9b::{v4}"),
            format!("[64:ff9b::{v4}]"),
        ]),
        IpAddr::V6(v6) => spellings.extend([format!("[{v6}]"), format!("[{v6}]:443"), format!("[{v6}%1]:0")]),
    }
    for spelling in spellings {
        assert_eq!(parse(spelling.as_bytes()), Some(address), "{spelling}");
    }
}

/// A key is the network that `ipnet` names, is the same for every address in it, and for none outside.
fn prefixes(address: IpAddr, prefix: Prefix) {
    let (length, bits) = if address.is_ipv4() { (prefix.ipv4, 32) } else { (prefix.ipv6, 128) };
    let network = IpNet::new(address, length).expect("a length in range").trunc();
    let expected = if length == bits { address.to_string() } else { network.to_string() };
    let text = key(address, prefix);
    assert_eq!(text, expected);
    for other in [network.network(), network.broadcast()] {
        assert_eq!(key(other, prefix), text, "{other}");
    }
    let flipped = match address {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() ^ 1 << (32 - u32::from(length)))),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() ^ 1 << (128 - u32::from(length))).into()),
    };
    assert_ne!(key(flipped, prefix), text, "{flipped}");
}

/// What an allow-list accepts is a network that holds its own addresses, however the host writes them.
fn networks(text: &str) {
    match network(text) {
        Ok(network_of_text) => {
            let written = network_of_text.to_string();
            assert_eq!(network(&written), Ok(network_of_text), "{written}");
            let allow = Allow::Networks(vec![network_of_text]);
            let first = network_of_text.network().to_string();
            assert!(allow.admits(&Request::new(&[], &|_| Some(first.clone().into_bytes()))), "{written}");
        }
        Err(accepted) => assert!(!accepted.is_empty()),
    }
}

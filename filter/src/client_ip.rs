//! The address of the client, as a key.
//!
//! It is the address that the proxy trusts (Envoy's `source.address`), so hops are configured in the proxy. The port
//! never counts; IPv4 mapped into IPv6 (`::ffff:192.0.2.1`, RFC 4291 section 2.5.5.2) or translated with the well-known
//! prefix of NAT64 (`64:ff9b::192.0.2.1`, RFC 6052 section 2.1) is IPv4; IPv6 is cut to a prefix, since one host owns a
//! whole /64 and could otherwise have 2^64 keys.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// How many leading bits of an address tell clients apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// For IPv4, 1 to 32.
    pub ipv4: u8,
    /// For IPv6, 1 to 128.
    pub ipv6: u8,
}

impl Default for Prefix {
    /// One IPv4 address; one IPv6 subnet.
    fn default() -> Self {
        Self { ipv4: 32, ipv6: 64 }
    }
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:443`, with or without a zone
/// (`fe80::1%eth0`). `None` for everything else, such as a path of a Unix socket.
pub fn parse(address: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(address).ok()?;
    let host = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            if !port.is_empty() {
                port.strip_prefix(':').and_then(|port| port.parse::<u16>().ok())?;
            }
            host
        }
        // One colon parts a port from an IPv4 address; more are an IPv6 address without brackets, hence without port.
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => {
                port.parse::<u16>().ok()?;
                host
            }
            _ => text,
        },
    };
    let host = host.split_once('%').map_or(host, |(host, _zone)| host);
    Some(match IpAddr::from_str(host).ok()?.to_canonical() {
        IpAddr::V6(address) => nat64(address).map_or(IpAddr::V6(address), IpAddr::V4),
        address => address,
    })
}

/// The IPv4 address in an address below 64:ff9b::/96. All IPv4 clients behind a translator would be one /64 otherwise.
fn nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    const PREFIX: u128 = 0x0064_ff9b << 96;
    let bits = address.to_bits();
    (bits >> 32 == PREFIX >> 32).then_some(Ipv4Addr::from_bits(bits as u32))
}

/// The value that stands for the client: the address, or its network in CIDR notation where that is wider.
pub fn key(address: IpAddr, prefix: Prefix) -> String {
    match address {
        IpAddr::V4(address) if prefix.ipv4 >= 32 => address.to_string(),
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.ipv4)).unwrap_or(0);
            format!("{}/{}", Ipv4Addr::from_bits(address.to_bits() & mask), prefix.ipv4)
        }
        IpAddr::V6(address) if prefix.ipv6 >= 128 => address.to_string(),
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.ipv6)).unwrap_or(0);
            format!("{}/{}", Ipv6Addr::from_bits(address.to_bits() & mask), prefix.ipv6)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn of(address: &str) -> Option<String> {
        parse(address.as_bytes()).map(|address| key(address, Prefix::default()))
    }

    #[test]
    fn ports_brackets_and_zones_do_not_count() {
        // C18
        for (address, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:5678", "192.0.2.1"),
            ("[2001:db8::7]:443", "2001:db8::/64"),
            ("[2001:db8::7]", "2001:db8::/64"),
            ("2001:db8::7", "2001:db8::/64"),
            ("2001:db8::1:8080", "2001:db8::/64"),
            ("2001:DB8:0:0::7", "2001:db8::/64"),
            ("fe80::1%eth0", "fe80::/64"),
            ("[fe80::1%eth0]:80", "fe80::/64"),
        ] {
            assert_eq!(of(address).as_deref(), Some(expected), "{address}");
        }
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        // D16
        for address in ["::ffff:192.0.2.1", "::ffff:c000:201", "[::FFFF:C000:0201]:80"] {
            assert_eq!(of(address).as_deref(), Some("192.0.2.1"), "{address}");
        }
        assert_eq!(of("2001:db8:1:2::192.0.2.1"), of("2001:db8:1:2::5"));
    }

    #[test]
    fn addresses_translated_by_nat64_are_ipv4() {
        assert_eq!(of("64:ff9b::192.0.2.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(of("[64:ff9b::c000:201]:443").as_deref(), Some("192.0.2.1"));
        // Not below the /96: the prefix of a local translator (RFC 8215) has a length that only its operator knows.
        assert_eq!(of("64:ff9b::1:c000:201").as_deref(), Some("64:ff9b::/64"));
        assert_eq!(of("64:ff9b:1::192.0.2.1").as_deref(), Some("64:ff9b:1::/64"));
    }

    #[test]
    fn prefixes_group() {
        // D15
        let of = |address: &str, ipv4, ipv6| key(parse(address.as_bytes()).unwrap(), Prefix { ipv4, ipv6 });
        assert_eq!(of("2001:db8:1:2:3::4", 32, 48), "2001:db8:1::/48");
        assert_eq!(of("2001:db8:1:2:3::4", 32, 56), "2001:db8:1::/56");
        assert_eq!(of("2001:db8:1:2:3::4", 32, 128), "2001:db8:1:2:3::4");
        assert_eq!(of("2001:db8:1:2:3::4", 32, 1), "::/1");
        assert_eq!(of("192.0.2.77", 24, 64), "192.0.2.0/24");
        assert_eq!(of("192.0.2.77", 1, 64), "128.0.0.0/1");
    }

    #[test]
    fn what_is_no_address_is_missing() {
        for address in [
            "",
            "unknown",
            "/run/envoy.sock",
            "192.0.2.1:port",
            "192.0.2.1:99999",
            "[::1",
            "[::1]x",
            "1.2.3",
            "é",
            "_x",
        ] {
            assert_eq!(of(address), None, "{address:?}");
        }
        assert_eq!(parse(b"\xa1\xb1"), None);
    }
}

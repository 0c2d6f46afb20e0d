//! Any request, under configurations that use everything.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use weir_filter::config::Config;
use weir_filter::exchange::Exchange;

use super::bytes;
use super::exchange::on_request;

/// Configurations with every key source, matcher and option between them.
pub static CONFIGS: LazyLock<Vec<Config>> = LazyLock::new(|| {
    [
        include_str!("../../filter/tests/config/valid/everything.json"),
        include_str!("../configs/keys.json"),
        include_str!("../configs/answers.json"),
        include_str!("../configs/shares.json"),
    ]
    .map(|text| Config::parse(text.as_bytes()).unwrap_or_else(|mistakes| panic!("{mistakes}")))
    .into()
});

/// A request: what the host shows, and what it knows besides.
struct Input {
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    properties: Vec<Vec<u8>>,
}

/// A choice of the configuration, then the request.
pub fn holds(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let (Ok(index), Ok(seed)) = (u.choose_index(CONFIGS.len()), u.arbitrary()) else { return };
    let Ok(input) = Input::read(&mut u) else { return };
    let config = &CONFIGS[index];
    let once = |headers: &[(Vec<u8>, Vec<u8>)]| {
        let mut exchange = Exchange::new(seed);
        on_request(&mut exchange, config, headers, &|path| input.property(path)).0
    };
    let transition = once(&input.headers);
    // Which lines stand first matters only within one field.
    let mut sorted = input.headers.clone();
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert_eq!(once(&sorted), transition);
    // Another field, which no rule asks for, changes nothing.
    sorted.push((b"x-fuzz-unrelated".to_vec(), b"value".to_vec()));
    assert_eq!(once(&sorted), transition);
}

impl Input {
    fn read(u: &mut Unstructured<'_>) -> Result<Self> {
        let properties = u.arbitrary_iter::<u8>()?.take(4).collect::<Result<Vec<_>>>()?;
        let properties = properties.into_iter().map(property_value).collect();
        let mut headers = Vec::new();
        while !u.is_empty() && headers.len() < 64 {
            let name = match u.int_in_range(0..=15)? {
                0 => bytes(u, &[b"x-", b":", b"-", b"ratelimit"])?,
                _ => u.choose(&NAMES)?.to_vec(),
            };
            let value = match name.as_slice() {
                b":method" => u.choose(&[b"GET".as_slice(), b"POST", b"OPTIONS", b"CONNECT", b"get", b""])?.to_vec(),
                b":path" => target(u)?,
                b":authority" => u.choose(&HOSTS)?.to_vec(),
                b"content-type" => bytes(u, &[b"application/grpc", b"-web", b"-text", b"+", b"proto", b";", b"json"])?,
                b"x-cost" => bytes(u, &[b"0", b"1", b"42", b"999999999999999", b"18446744073709551616", b"-1"])?,
                b"cookie" => bytes(u, &[b"session=", b"; ", b"\"", b"a", b"session", b"theme=x"])?,
                _ => bytes(u, &[b"org_9921", b"internal-batch", b"free", b"b-", b"7", b"a", b"https://a.example"])?,
            };
            headers.push((name, value));
        }
        Ok(Self { headers, properties })
    }

    /// The same property has the same value each time it is asked for; which of them it is depends on its last name.
    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        let name = path.last()?;
        self.properties.get(name.len() % 4).filter(|value| value.as_slice() != b"absent").cloned()
    }
}

const NAMES: [&[u8]; 16] = [
    b":method",
    b":path",
    b":path",
    b":authority",
    b"content-type",
    b"x-cost",
    b"cookie",
    b"x-api-key",
    b"x-plan",
    b"x-a",
    b"x-c",
    b"x-d",
    b"x-e",
    b"origin",
    b"access-control-request-method",
    b"x-tenant",
];

const HOSTS: [&[u8]; 10] = [
    b"api.example.com",
    b"API.Example.com.:443",
    b"a.b.example.org",
    b"example.org",
    b"[2001:db8::1]",
    b"[2001:db8::1]:443",
    b"[2001:db8::1",
    b":",
    b"\xff.example.org",
    b"",
];

fn target(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const PATHS: [&[u8]; 9] = [
        b"/api/",
        b"/healthz",
        b"/files/a/raw",
        b"/keys/",
        b"/costs",
        b"/first",
        b"/shadow",
        b"/many/x/y",
        b"/%61pi//",
    ];
    let pieces: [&[u8]; 14] = [
        b"q=a+b",
        b"page=1",
        b"%C3%A9=1",
        b"tenant=",
        b"&",
        b"?",
        b"#",
        b"/",
        b"..",
        b"%2e",
        b"%2F",
        b"%",
        b"seg",
        b"q=a%20b",
    ];
    Ok([u.choose(&PATHS)?.to_vec(), bytes(u, &pieces)?, bytes(u, &pieces)?].concat())
}

fn property_value(choice: u8) -> Vec<u8> {
    let values: [&[u8]; 14] = [
        b"absent",
        b"",
        b"192.0.2.7:1",
        b"10.1.2.3:4711",
        b"[2001:db9::1]:443",
        b"::ffff:192.0.2.1",
        b"/run/envoy.sock",
        b"admin",
        b"org_1",
        &[1],
        &[0],
        &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        &[0xff; 8],
        b"\xa1\xb1\r\n\0",
    ];
    values[usize::from(choice) % values.len()].to_vec()
}

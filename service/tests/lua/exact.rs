//! Exact division in Lua against 128-bit integers.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use weir_protocol::{MAX_QUANTITY, MAX_WINDOW_MS};

use crate::server::Server;

const SCRIPT: &str = concat!(
    include_str!("../../../lua/exact.lua"),
    "local replies = {}
     for i = 1, #ARGV, 3 do
       local quotient, rest = mul_div(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
       replies[#replies + 1] = digits(quotient)
       replies[#replies + 1] = digits(rest)
       replies[#replies + 1] = digits(ceil_div(tonumber(ARGV[i]), tonumber(ARGV[i + 2])))
     end
     return replies",
);

/// a, b and d such that the quotient stays below 2^50, with a liking for products around a multiple of d.
fn operands() -> impl Strategy<Value = (u64, u64, u64)> {
    let quantity = || {
        prop_oneof![
            1..=20u64,
            1..=MAX_QUANTITY,
            (MAX_QUANTITY - 20)..=MAX_QUANTITY,
            (0..50u32, -1..=1i8)
                .prop_map(|(bits, more)| (1u64 << bits).saturating_add_signed(more.into()).clamp(1, MAX_QUANTITY)),
        ]
    };
    let window = || prop_oneof![Just(1000), Just(MAX_WINDOW_MS * 1000), 1..=MAX_WINDOW_MS * 1000];
    prop_oneof![
        (quantity(), window(), quantity()),
        (quantity(), window(), window()),
        (quantity(), quantity(), quantity()),
        // d = b * k / n and so on: exact multiples and their neighbours.
        (quantity(), 1..=1000u64, 1..=MAX_QUANTITY / 1000, -1..=1i8).prop_map(|(a, k, d, more)| (
            a,
            (k * d).saturating_add_signed(more.into()),
            d
        )),
    ]
    .prop_filter("the quotient is below 2^50", |(a, b, d)| {
        u128::from(*a) * u128::from(*b) / u128::from(*d) < 1 << 50 && *b < 1 << 50
    })
}

#[test]
fn products_are_divided_exactly() {
    let server = Server::start();
    let connection = std::cell::RefCell::new(server.connect());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 100,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/exact.txt"))),
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    });
    runner
        .run(&proptest::collection::vec(operands(), 1..1000), |all| {
            let mut command = redis::cmd("EVAL");
            command.arg(SCRIPT).arg(0);
            for (a, b, d) in &all {
                command.arg(a).arg(b).arg(d);
            }
            let replies: Vec<u64> = command.query(&mut *connection.borrow_mut()).unwrap();
            prop_assert_eq!(replies.len(), all.len() * 3);
            for ((a, b, d), reply) in all.into_iter().zip(replies.chunks_exact(3)) {
                let product = u128::from(a) * u128::from(b);
                let (quotient, rest) = (product / u128::from(d), product % u128::from(d));
                let got = (u128::from(reply[0]), u128::from(reply[1]));
                prop_assert_eq!(got, (quotient, rest), "{} * {} / {}", a, b, d);
                prop_assert_eq!(reply[2], a.div_ceil(d), "ceil({} / {})", a, d);
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

//! `docs/algorithms.md` and its pictures.

mod pictures;
mod tables;

use std::fmt::Write as _;

pub use pictures::pictures;

use crate::Evidence;
use crate::limiter::Limiter;
use crate::picture::grouped;
use crate::precision::Row;
use crate::traffic::LIMIT;

/// From this agreement on with the exact log the page says that "about 99 %" holds.
pub const ABOUT_99: f64 = 98.5;

/// The whole page.
pub fn text(evidence: &Evidence) -> String {
    let mut page = String::new();
    let mut add = |text: &str| writeln!(page, "{}\n", text.trim()).expect("memory");
    add("# The four algorithms, measured");
    add(
        "This page and its pictures are written by a program, not by hand (`tests/evidence/`). It drives the service and the
script as they ship, on a real Redis:",
    );
    add("```console\nmake evidence\n```");
    add(&format!(
        "It takes less than five minutes. The seed is {}; with the same seed every table comes out the same, except those
marked *timing*, which depend on the machine, and the bytes of (d), which depend on Redis' version. [How it was measured](#how-it-was-measured) says what ran on a real clock and
what on a simulated one.",
        evidence.seed
    ));
    add(&choice(evidence));
    add(&usual_table(evidence));
    add(&tables::boundary(evidence));
    add(&tables::largest(evidence));
    add(&tables::wrong(evidence));
    add(&tables::bytes(evidence));
    add(&tables::time(evidence));
    add(&tables::pace(evidence));
    add(&method(evidence));
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn choice(evidence: &Evidence) -> String {
    let counter = attack(evidence, Limiter::Counter);
    let [log_100, log_100k] = [100, 100_000].map(|requests| {
        let size = evidence.cost.sizes.iter().find(|size| size.requests == requests);
        grouped(size.expect("a measured size").bytes[1] as f64)
    });
    format!(
        "## Which one to choose

- **`sliding_window_counter`, if you have no reason for another one.** Limits by API key or address, for many clients,
  at any limit. It takes the same little memory however high the limit is, and there is no moment at which a client is
  given a fresh limit. It is an estimate: it assumes that the requests of the previous window came evenly. Who sends them
  all at the end of that window, and then a few at a time, gets **nearly twice the limit into one trailing window**:
  {counter} of a limit of {LIMIT} here, and 2 × limit - 1 is the most that there can be. But that takes a whole window: in any
  shorter span it admits at most limit × (1 + span / window), in a tenth of a window 1.1 times the limit. A token bucket
  with `burst` equal to `limit` has the same bound.
- **`sliding_window_log`, for a promise.** Never more than the limit in any span of a window, wherever it begins: password
  attempts, payments, a contract. It remembers each admitted request, so it is for limits up to some thousands: {log_100} bytes
  a client at a limit of 100, {log_100k} bytes at 100 000. A client that has used up its limit in one moment waits a
  whole window, and then can do so again.
- **`token_bucket`, for a pace, or for costs.** What must not be overrun is something that works at a rate: a database, a
  model, another company's API. `limit` is the rate, `burst` is what may come at once, and they are set apart. It is the
  only one whose pace is even by its rule, for whoever asks ([f](#f-smoothness)). Mind the default: with `burst` equal to
  `limit`, a full bucket and what trickles in meanwhile are also twice the limit in one window. For limits that
  nobody may exceed by much, set `burst` to a tenth of it or less.
- **`fixed_window`, for quotas that start over.** \"10 000 a day\" on a price list: within each window of the clock it is
  exact, everybody understands it, and everybody knows when it starts over. Around an edge twice the limit passes in
  an instant, and no ill will is needed: it is enough that a client's jobs start on the minute. Not for protecting what a
  burst can break."
    )
}

/// The comparison that is found everywhere, line by line.
fn usual_table(evidence: &Evidence) -> String {
    let rows = &evidence.precision.rows;
    let [fixed, log_bytes, counter, bucket] = [0, 1, 2, 3].map(|column| {
        let sizes = &evidence.cost.sizes;
        [0, sizes.len() - 1].map(|size| grouped(sizes[size].bytes[column] as f64))
    });
    let log_costs = (&evidence.cost.costs[1], &evidence.cost.costs[4]);
    let boundary = &evidence.boundary[0];
    let (holding, failing): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| agreement(row, Limiter::Counter) >= ABOUT_99);
    let list = |rows: &[&Row]| {
        let entries: Vec<String> =
            rows.iter().map(|row| format!("{} ({:.2} %)", row.name, agreement(row, Limiter::Counter))).collect();
        if entries.is_empty() { "none".to_owned() } else { entries.join("; ") }
    };
    let amounts: Vec<String> = rows.iter().map(|row| format!("{}: {:.1}", row.name, amount(row))).collect();
    let fixed_agreements: Vec<f64> = rows.iter().map(|row| agreement(row, Limiter::FixedWindow)).collect();
    let worst_fixed = fixed_agreements.iter().copied().fold(f64::INFINITY, f64::min);
    let best_fixed = fixed_agreements.iter().copied().fold(0.0, f64::max);
    format!(
        "## The usual comparison table, checked

| the usual table says | measured | does it hold? |
| --- | --- | --- |
| fixed window: low precision | decides as the exact log does in {worst_fixed:.1} to {best_fixed:.1} % of the requests, \
depending on the traffic ([c](#c-wrong-decisions)) | yes, where clients are near their limit. Within the clock's own \
windows it is exact |
| fixed window: uncontrolled burst at the boundary | {} of a limit of {} within 0.7 s ([a](#a-the-burst-at-a-windows-edge)) \
| yes: twice the limit |
| fixed window: O(1) | {} bytes after 1 request, {} after 100 000 ([d](#d-bytes-in-redis)) | yes |
| sliding log: 100 % exact | at most {} of {LIMIT} in any trailing window of any traffic, its adversary's included; no \
decision against the rule ([b](#b-the-fullest-window), [c](#c-wrong-decisions)) | yes |
| sliding log: O(N) | {} bytes after 1 request, {} after 100 000; an admission takes {:.0} µs with some hundred requests \
in the log and {:.0} µs with 100 000 (*timing*, [e](#e-time-of-redis-for-a-decision)) | of memory, yes. An admission and a \
refused request of cost 1 take the same number of commands at any N; what must search (a larger refused cost, a backlog) \
takes O(log N) of them |
| sliding counter: about 99 % | **how many** it admits, in percent of what the log admits: {} ([c](#c-wrong-decisions)) | yes \
for traffic without a rhythm, less so for bursts, not for an adversary |
| | **which** it admits: decides as the exact log does in at least {ABOUT_99} % of the requests of {}; in fewer of {} | \
it depends on the traffic: yes for clients below their limit, no for a client at it or above |
| | **how much a window holds**: up to {} of {LIMIT} ([b](#b-the-fullest-window)) | no: nearly twice the limit |
| sliding counter: O(1) | {} bytes after 1 request, {} after 100 000 | yes |
| token bucket: controlled burst | the fullest window has {} of {LIMIT} with `burst` = limit, {} with a tenth of it | yes, \
but it is `burst` that controls it, and at its default a window can hold twice the limit |
| token bucket: O(1) | {} bytes after 1 request, {} after 100 000 | yes |",
        boundary.at(crate::boundary::FIRST_MS) + boundary.at(crate::boundary::SECOND_MS),
        crate::boundary::LIMIT,
        fixed[0],
        fixed[1],
        attack(evidence, Limiter::Log),
        log_bytes[0],
        log_bytes[1],
        log_costs.0.admitted_us,
        log_costs.1.admitted_us,
        amounts.join("; "),
        list(&holding),
        list(&failing),
        attack(evidence, Limiter::Counter),
        counter[0],
        counter[1],
        attack(evidence, Limiter::Bucket),
        attack(evidence, Limiter::SmallBucket),
        bucket[0],
        bucket[1],
    )
}

fn method(evidence: &Evidence) -> String {
    let mut text = format!(
        "## How it was measured

| | what ran | clock |
| --- | --- | --- |
| a, f | `dist/weir` over HTTP, Redis | Redis' own, in real time |
| d, e | `dist/weir` over HTTP, Redis, `MEMORY USAGE` and `INFO commandstats` | Redis' own, in real time |
| b, c | Redis and the script, the text of `lua/*.lua`; of it `clock.lua` alone is replaced, by one that takes the time \
from the arguments | simulated, from 2100-01-01 on |

A simulated clock because a day of traffic has to fit into seconds, and has to come out the same each time; a real Redis
and the shipped text because only they are what runs. Simulated time lies in the future so that Redis, which expires keys
by its own clock, keeps them. The two ways are held together by (a): the same burst, and the counter's slow way to
nearly twice the limit, seen through the real service. The verdicts of (a) are counted at the times at which the volleys were
due; an attack whose volleys came late is repeated.

The figures are from Redis {} on a machine with {} cores. The program ends with an error if a number contradicts the main
statements of this page, or if it took five minutes.

**Chance** is SplitMix64, written out in `tests/evidence/random.rs`, with seed {} and a stream of its own for each traffic.
`cargo run --release -p weir-tests --bin weir-evidence -- --seed 2 --out /tmp` measures with another one.

**Traffic** of (b) and (c), one request costs 1, the limit is {LIMIT} in a minute; load is what is asked for over what the
limit grants:

| traffic | how it is made |
| --- | --- |
",
        evidence.redis, evidence.cores, evidence.seed
    );
    for row in &evidence.precision.rows {
        writeln!(text, "| {} | {} |", row.name, row.how).expect("memory");
    }
    text.push_str(
        "
**The adversary** knows the limit, the window and Redis' clock, not the algorithm. Its plan: the whole limit at one moment,
all of it again at another, then one request every so often until a window after the first. For each algorithm, and
for spans of a window and of a tenth of one, it tries 40 random plans, then three times 39 variations of the best one. The
search need not find the worst, so the tables in (b) have the bound of each rule beside it.
",
    );
    text
}

fn attack(evidence: &Evidence, limiter: Limiter) -> usize {
    let attacks = evidence.precision.attacks.iter().zip(Limiter::ALL);
    attacks.filter(|(_, one)| *one == limiter).map(|(attack, _)| attack.largest).sum()
}

/// What the counter admits, in percent of what the exact log admits.
pub fn amount(row: &Row) -> f64 {
    100.0 * row.of(Limiter::Counter).admitted as f64 / row.of(Limiter::Log).admitted as f64
}

/// Requests that a limiter decides as the exact log does, in percent.
pub fn agreement(row: &Row, limiter: Limiter) -> f64 {
    100.0 - row.percent(row.of(limiter).against_log.total())
}

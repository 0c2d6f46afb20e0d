//! One section for each measurement: words, picture, table.

use std::fmt::Write as _;

use crate::Evidence;
use crate::adversary::Plan;
use crate::boundary;
use crate::limiter::Limiter;
use crate::picture::grouped;
use crate::smoothness;
use crate::traffic::LIMIT;

use super::{agreement, amount};

pub fn boundary(evidence: &Evidence) -> String {
    let mut text = format!(
        "## (a) The burst at a window's edge

Limit {} in 10 s. A client asks for all of it {} ms before an edge and for all of it again {} ms after the edge, then for
two every quarter of a second.

![Admitted over time by each algorithm: the fixed window admits twice the limit at once; counter and bucket rise slowly \
to nearly twice the limit; the log stays at the limit](algorithms/boundary-burst.svg)

| | first volley | second volley | within 0.7 s | fullest window of 10 s | of the limit |
| --- | ---: | ---: | ---: | ---: | ---: |
",
        boundary::LIMIT,
        -boundary::FIRST_MS,
        boundary::SECOND_MS
    );
    for admitted in &evidence.boundary {
        let (first, second) = (admitted.at(boundary::FIRST_MS), admitted.at(boundary::SECOND_MS));
        let largest = admitted.largest();
        let share = 100.0 * largest as f64 / boundary::LIMIT as f64;
        let (label, both) = (admitted.limiter.label(), first + second);
        writeln!(text, "| {label} | {first} | {second} | {both} | {largest} | {share:.0} % |").expect("memory");
    }
    text.push_str(
        "
The burst itself is what tells them apart: the fixed window lets twice the limit through within a second, the others about
the limit. Over a whole window the counter and the bucket let nearly as much through as the fixed window, but
slowly, at the rate of the limit. The log lets nothing more through until the first volley has left the window, and then all
of it could come again at once.",
    );
    text
}

pub fn largest(evidence: &Evidence) -> String {
    let mut text = format!(
        "## (b) The fullest window

The most that any trailing window of a minute held, in percent of the limit of {LIMIT}. *Trailing* is any span of a minute,
not only those of the clock.

![The fullest trailing window by traffic and algorithm; only the log never passes 100 percent]\
(algorithms/fullest-window.svg)

{}",
        head("traffic")
    );
    let percent = |count: u64| format!("{:.0} %", 100.0 * count as f64 / LIMIT as f64);
    for row in &evidence.precision.rows {
        let cells = Limiter::ALL.map(|limiter| percent(row.of(limiter).largest as u64));
        writeln!(text, "| {} | {} |", row.name, cells.join(" | ")).expect("memory");
    }
    let found: Vec<String> = evidence.precision.attacks.iter().map(|attack| percent(attack.largest as u64)).collect();
    writeln!(text, "| **adversary of each** | {} |", found.join(" | ")).expect("memory");
    let bounds = Limiter::ALL.map(|limiter| percent(limiter.bound(LIMIT)));
    writeln!(text, "| *bound of its rule* | {} |", bounds.join(" | ")).expect("memory");
    writeln!(
        text,
        "\nThe same in a tenth of a window, 6 s: what can hit a backend at once.\n\n{}",
        head("").trim_end()
    )
    .expect("memory");
    let found: Vec<String> =
        evidence.precision.short_attacks.iter().map(|attack| percent(attack.largest as u64)).collect();
    writeln!(text, "| **adversary of each, in a tenth** | {} |", found.join(" | ")).expect("memory");
    let bounds = Limiter::ALL.map(|limiter| percent(limiter.short_bound(LIMIT)));
    writeln!(text, "| *bound of its rule* | {} |", bounds.join(" | ")).expect("memory");
    text.push_str("\nWhat the adversary found best in a window:\n\n| | the limit at once before an edge | again after it | then one every |\n| --- | ---: | ---: | ---: |\n");
    for (attack, limiter) in evidence.precision.attacks.iter().zip(Limiter::ALL) {
        let Plan { before_edge_us, after_edge_us, every_us } = attack.plan;
        let [before, after, every] = [before_edge_us, after_edge_us, every_us].map(duration);
        writeln!(text, "| {} | {before} | {after} | {every} |", limiter.label()).expect("memory");
    }
    text.push_str(
        "
Without an adversary the counter stays nearer to the limit than the fixed window does, but bursts alone take it far above.
With an adversary its window holds as much as the fixed window's; the difference is that it gives the second limit out
slowly, as the bucket does. Every plan against the log is as good as any other: it ends at the limit.",
    );
    text
}

pub fn wrong(evidence: &Evidence) -> String {
    let mut text = "## (c) Wrong decisions

Each request of a traffic is put to the counter and to the exact log, which each live with what they have admitted. *Against
the log*: the two disagree. *Against the rule*: the counter admits although it has already admitted the limit in the
trailing window, or refuses although it has not.

![Share of decisions that differ from the exact log's, by traffic](algorithms/wrong-decisions.svg)

| traffic | requests | the log admits | the counter admits | counter / log | against the log: admitted / refused | agreement \
| against the rule: admitted / refused |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"
    .to_owned();
    for row in &evidence.precision.rows {
        let (log, counter) = (row.of(Limiter::Log), row.of(Limiter::Counter));
        writeln!(
            text,
            "| {} | {} | {:.2} % | {:.2} % | {:.1} % | {:.2} % / {:.2} % | **{:.2} %** | {:.2} % / {:.2} % |",
            row.name,
            grouped(row.requests as f64),
            row.percent(log.admitted),
            row.percent(counter.admitted),
            amount(row),
            row.percent(counter.against_log.admitted),
            row.percent(counter.against_log.refused),
            agreement(row, Limiter::Counter),
            row.percent(counter.against_rule.admitted),
            row.percent(counter.against_rule.refused),
        )
        .expect("memory");
    }
    text.push_str("\nAgreement with the exact log, for comparison:\n\n");
    text.push_str(&head("traffic"));
    for row in &evidence.precision.rows {
        let cells = Limiter::ALL.map(|limiter| format!("{:.2} %", agreement(row, limiter)));
        writeln!(text, "| {} | {} |", row.name, cells.join(" | ")).expect("memory");
    }
    text.push_str(
        "
How to read it: a client well below its limit is hardly ever refused by either. They part where a client is at its limit or
above, and there they differ mostly in *which* request of a crowd they admit, and hardly in *how many* (counter / log),
unless the requests have a rhythm that fits the windows. So the \"about 99 %\" that is told of a sliding counter is fair for
amounts, and as a share of right decisions it is a figure about the traffic: with enough clients below their limit any
algorithm reaches it. *Against the rule* counts every refusal while one unit was free: a client that asks ten times a second
is refused wrongly as often until that unit is granted. A token bucket does not approximate the log: that it disagrees is no
fault.",
    );
    text
}

pub fn bytes(evidence: &Evidence) -> String {
    let mut text = "## (d) Bytes in Redis

`MEMORY USAGE` of the one key that Redis holds for one client, `org_9921`, after so many admitted requests within the window.
Refused requests write nothing.

![Bytes against requests, both logarithmic: the log rises, the others are level](algorithms/bytes.svg)

| requests | fixed_window | sliding_window_log | a request | sliding_window_counter | token_bucket |
| ---: | ---: | ---: | ---: | ---: | ---: |
"
    .to_owned();
    for size in &evidence.cost.sizes {
        let [fixed, log, counter, bucket] = size.bytes.map(|bytes| grouped(bytes as f64));
        let each = size.bytes[1] as f64 / size.requests as f64;
        let requests = grouped(size.requests as f64);
        writeln!(text, "| {requests} | {fixed} | {log} | {each:.1} | {counter} | {bucket} |").expect("memory");
    }
    text.push_str(
        "
The log never holds more requests than the limit, so the limit is what bounds its memory. How much of it a bucket holds \
changes nothing.",
    );
    text
}

pub fn time(evidence: &Evidence) -> String {
    let base = evidence.cost.baseline_us;
    let mut text = format!(
        "## (e) Time of Redis for a decision

*Timing.* Mean time in EVALSHA by `INFO commandstats`, with all that the script calls, the least of 5
rounds of 3 000 checks of one limit over 4 connections through the service, interleaved but for the admissions of the last row. It is elapsed time of Redis' one
thread: a busy machine adds to it, hence the least. Redis runs one command at a time, so 1 s over this is
the most that one Redis can decide, less what it spends on its sockets. A script that does one GET and one SET with expiry
takes {base:.1} µs: the ratio to that says more than the microseconds, which move with the machine.

![Time for an admission and a refusal by algorithm](algorithms/time.svg)

| | admitted | ratio | refused | ratio |
| --- | ---: | ---: | ---: | ---: |
"
    );
    for cost in &evidence.cost.costs {
        let (admitted, refused) = (cost.admitted_us, cost.refused_us);
        writeln!(
            text,
            "| {} | {admitted:.1} µs | {:.2} | {refused:.1} µs | {:.2} |",
            cost.what,
            admitted / base,
            refused / base
        )
        .expect("memory");
    }
    text.push_str(
        "
Admissions are those of living states: windows of 100 ms that pass and are trimmed, a bucket that is never full. Refusals are
those of a client that has used up a limit of 100. In the last row the log holds the 100 000 requests of (d), and more with
each admission.",
    );
    text
}

pub fn pace(evidence: &Evidence) -> String {
    let mut text = format!(
        "## (f) Smoothness

*Timing.* A client asks every {} ms for {} s, ten times what its limit of {} in 2 s grants. An even pace would be one
admission every {:.0} ms.

![Admissions as ticks over time: fixed window and log admit in lumps, one in each window; the counter after its first \
window, and the buckets, evenly](algorithms/pace.svg)

| | admitted | median gap | longest gap | most within 100 ms |
| --- | ---: | ---: | ---: | ---: |
",
        smoothness::EVERY.as_millis(),
        smoothness::WINDOW.as_secs() * u64::from(smoothness::WINDOWS),
        smoothness::LIMIT,
        smoothness::EVEN_MS
    );
    for pace in &evidence.smoothness {
        writeln!(
            text,
            "| {} | {} | {:.0} ms | {:.0} ms | {} |",
            pace.limiter.label(),
            pace.admitted_s.len(),
            pace.gap_ms(0.5),
            pace.gap_ms(1.0),
            pace.most_in_100_ms()
        )
        .expect("memory");
    }
    text.push_str(
        "
The fixed window and the log hand out a window's limit as fast as it is asked for, then nothing until the next window. After
its first window the counter admits at about the limit's rate, because the previous window's share shrinks evenly; it does
so by its assumption, not by what happened. The bucket admits evenly once its burst is spent, and with a small burst
from the start.",
    );
    text
}

/// Head of a table with a column for each limiter.
fn head(first: &str) -> String {
    let labels = Limiter::ALL.map(Limiter::label);
    format!("| {first} | {} |\n| --- |{}\n", labels.join(" | "), " ---: |".repeat(labels.len()))
}

fn duration(us: f64) -> String {
    if us < 1e6 { format!("{:.0} ms", us / 1e3) } else { format!("{:.1} s", us / 1e6) }
}

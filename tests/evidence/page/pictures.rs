//! Which pictures there are.

use crate::Evidence;
use crate::boundary;
use crate::cost::LIMITERS;
use crate::limiter::Limiter;
use crate::picture::{Axis, BLUE, Bars, Line, Mark, ORANGE, SKY, VERMILION, bars, colour, lines, log_lines, ticks};
use crate::precision::Row;
use crate::smoothness;
use crate::traffic::LIMIT;

use super::attack;

/// Name and SVG of each.
pub fn pictures(evidence: &Evidence) -> Vec<(&'static str, String)> {
    vec![
        ("boundary-burst", boundary_burst(evidence)),
        ("fullest-window", fullest_window(evidence)),
        ("wrong-decisions", wrong_decisions(evidence)),
        ("bytes", bytes(evidence)),
        ("time", time(evidence)),
        ("pace", pace(evidence)),
    ]
}

fn boundary_burst(evidence: &Evidence) -> String {
    let end = boundary::LAST_MS as f64 / 1000.0;
    let series: Vec<Line> = evidence
        .boundary
        .iter()
        .map(|admitted| {
            let mut points = vec![(-1.0, 0.0)];
            let mut sum = 0;
            for (ms, count) in &admitted.volleys {
                let at = *ms as f64 / 1000.0;
                points.push((at, sum as f64));
                sum += count;
                points.push((at, sum as f64));
            }
            points.push((end, sum as f64));
            Line { limiter: admitted.limiter, label: short(admitted.limiter).to_owned(), points }
        })
        .collect();
    lines(
        "Admitted in all, limit 40 in 10 s: 40 asked before the edge, 40 after it, then 8 a second",
        &Axis { from: -1.0, to: 11.0, title: "seconds since the edge of a window" },
        &Axis { from: 0.0, to: 100.0, title: "requests admitted in all" },
        &series,
        &[Mark::Across(40.0, "the limit"), Mark::Upright(0.0, "edge"), Mark::Upright(10.0, "edge")],
    )
}

fn fullest_window(evidence: &Evidence) -> String {
    let mut categories: Vec<String> = evidence.precision.rows.iter().map(category).collect();
    categories.pop();
    categories.push("adversary\nof each".into());
    let series: Vec<Bars<'_>> = Limiter::ALL
        .into_iter()
        .map(|limiter| {
            let rows = &evidence.precision.rows;
            let mut values: Vec<f64> =
                rows[..rows.len() - 1].iter().map(|row| percent(row.of(limiter).largest)).collect();
            values.push(percent(attack(evidence, limiter)));
            Bars { label: short(limiter), colour: colour(limiter), values }
        })
        .collect();
    bars(
        "The most that any trailing window of one minute held (dashed: the limit)",
        &Axis { from: 0.0, to: 225.0, title: "percent of the limit" },
        &categories,
        &series,
        Some(100.0),
    )
}

fn wrong_decisions(evidence: &Evidence) -> String {
    let rows = &evidence.precision.rows;
    let of = |number: fn(&Row) -> usize| rows.iter().map(|row| row.percent(number(row))).collect::<Vec<f64>>();
    let series = [
        Bars {
            label: "counter: admitted, the log refuses",
            colour: BLUE,
            values: of(|row| row.of(Limiter::Counter).against_log.admitted),
        },
        Bars {
            label: "counter: refused, the log admits",
            colour: SKY,
            values: of(|row| row.of(Limiter::Counter).against_log.refused),
        },
        Bars {
            label: "fixed window: both",
            colour: VERMILION,
            values: of(|row| row.of(Limiter::FixedWindow).against_log.total()),
        },
    ];
    let highest = series.iter().flat_map(|bars| &bars.values).copied().fold(0.0, f64::max);
    bars(
        "Decisions that differ from the exact log's for the same requests",
        &Axis { from: 0.0, to: highest * 1.12, title: "percent of the requests" },
        &rows.iter().map(category).collect::<Vec<_>>(),
        &series,
        None,
    )
}

fn bytes(evidence: &Evidence) -> String {
    let series: Vec<Line> = LIMITERS
        .into_iter()
        .enumerate()
        .map(|(column, limiter)| {
            let sizes = evidence.cost.sizes.iter();
            let points = sizes.map(|size| (size.requests as f64, size.bytes[column] as f64)).collect();
            Line { limiter, label: limiter.algorithm().to_owned(), points }
        })
        .collect();
    log_lines(
        "What Redis holds for one client (three of the four lines lie on each other)",
        &Axis { from: 1.0, to: 100_000.0, title: "requests admitted in the window" },
        &Axis { from: 10.0, to: 10_000_000.0, title: "bytes of the key (MEMORY USAGE)" },
        &series,
    )
}

fn time(evidence: &Evidence) -> String {
    let costs = &evidence.cost.costs;
    let categories: Vec<String> = costs
        .iter()
        .map(|cost| {
            cost.what.replace("sliding_window_log, ", "sliding_window_log\n").replace(" requests in it", " in it")
        })
        .collect();
    let series = [
        Bars { label: "admitted", colour: BLUE, values: costs.iter().map(|cost| cost.admitted_us).collect() },
        Bars { label: "refused", colour: ORANGE, values: costs.iter().map(|cost| cost.refused_us).collect() },
    ];
    let highest = series.iter().flat_map(|bars| &bars.values).copied().fold(0.0, f64::max);
    let title = format!(
        "Time of Redis for one decision (timing); dashed: a script of one GET and one SET, {:.1} µs",
        evidence.cost.baseline_us
    );
    bars(
        &title,
        &Axis { from: 0.0, to: highest * 1.2, title: "µs in EVALSHA, least of 5 rounds" },
        &categories,
        &series,
        Some(evidence.cost.baseline_us),
    )
}

fn pace(evidence: &Evidence) -> String {
    let rows: Vec<(Limiter, &[f64])> =
        evidence.smoothness.iter().map(|pace| (pace.limiter, pace.admitted_s.as_slice())).collect();
    let window = smoothness::WINDOW.as_secs_f64();
    let edges: Vec<f64> = (1..smoothness::WINDOWS).map(|n| f64::from(n) * window).collect();
    ticks(
        "When a client that asks every 4 ms is admitted, limit 50 in 2 s: one tick an admission (timing)",
        &Axis { from: 0.0, to: window * f64::from(smoothness::WINDOWS), title: "seconds since an edge of a window" },
        &rows,
        &edges,
    )
}

fn short(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::FixedWindow => "fixed window",
        Limiter::Log => "log",
        Limiter::Counter => "counter",
        Limiter::Bucket => "bucket, burst = limit",
        Limiter::SmallBucket => "bucket, burst = limit / 10",
    }
}

fn category(row: &Row) -> String {
    row.name.replace(", load", "\nload").replace("adversary of the", "adversary of\nthe")
}

fn percent(count: usize) -> f64 {
    100.0 * count as f64 / LIMIT as f64
}

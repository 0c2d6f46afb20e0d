//! Twice the limit around the edge of a window: half just before it, half just after. What gets through is what tells
//! the algorithms apart.

use std::time::{Duration, Instant};

use harness::{Response, Stack, burst, until_edge};

use crate::rules::{ALGORITHMS, LIMIT, WINDOW};
use crate::terminal::{bold, line, say};

/// When the first half is sent, before the edge.
const BEFORE: Duration = Duration::from_millis(400);
/// When the second half is sent, after the edge. The counter has then forgotten a 16th of the first half: one request.
const AFTER: Duration = Duration::from_millis(250);
/// A machine that stalls may miss the edge; so often it may try.
const ATTEMPTS: usize = 4;

/// How many of one algorithm's requests got through.
struct Row {
    algorithm: &'static str,
    before: usize,
    after: usize,
}

/// Times of one attempt, from outside: the decisions fell between them.
struct Times {
    /// From before the first request until after the last answer.
    whole: Duration,
    /// From the edge until after the last answer.
    since_edge: Duration,
}

pub async fn show(stack: &Stack) -> Result<(), String> {
    say(&format!(
        "Each algorithm has a limit of {LIMIT} in {}s. A client sends {LIMIT} requests {}ms before the edge of a window \
         (by the clock, that is a multiple of {}s) and {LIMIT} more {}ms after it, each half at once:",
        WINDOW.as_secs(),
        BEFORE.as_millis(),
        WINDOW.as_secs(),
        AFTER.as_millis(),
    ));
    for attempt in 0..ATTEMPTS {
        let key = format!("edge-{attempt}");
        if let Some((rows, times)) = attempt_at_edge(stack, &key).await {
            print(&rows);
            return rows.iter().try_for_each(|row| check(stack, row, &key, &times));
        }
        say("(the machine was too slow for this edge; waiting for the next one)");
    }
    Err("the machine is too busy to hit the edge of a window".into())
}

/// `None` if a half came too late.
async fn attempt_at_edge(stack: &Stack, key: &str) -> Option<(Vec<Row>, Times)> {
    let mut wait = until_edge(WINDOW);
    if wait < BEFORE + Duration::from_millis(100) {
        wait += WINDOW;
    }
    let edge = Instant::now() + wait;
    tokio::time::sleep_until((edge - BEFORE).into()).await;
    let started = Instant::now();
    let before = half(stack, key).await;
    if Instant::now() >= edge {
        return None;
    }
    tokio::time::sleep_until((edge + AFTER).into()).await;
    let after = half(stack, key).await;
    let ended = Instant::now();
    if ended >= edge + WINDOW / 2 {
        return None;
    }
    let rows = ALGORITHMS.into_iter().zip(before).zip(after);
    let rows = rows.map(|((algorithm, before), after)| Row { algorithm, before, after }).collect();
    Some((rows, Times { whole: ended - started, since_edge: ended - edge }))
}

/// [`LIMIT`] requests to each algorithm, all at once: how many of each were allowed.
async fn half(stack: &Stack, key: &str) -> [usize; 4] {
    let send = async |algorithm: &str| {
        let url = stack.envoy.url(&format!("/{algorithm}"));
        let answers = burst(&url, LIMIT, |_| vec![("x-api-key", key)]).await;
        answers.iter().filter(|answer: &&Response| answer.status == 200).count()
    };
    let [a, b, c, d] = ALGORITHMS;
    let (a, b, c, d) = tokio::join!(send(a), send(b), send(c), send(d));
    [a, b, c, d]
}

fn print(rows: &[Row]) {
    line("");
    line(&bold(&format!(
        "{:24}{:>8}{:>8}{:>16}   {}",
        "algorithm",
        "before",
        "after",
        format!("through of {}", 2 * LIMIT),
        "because"
    )));
    for Row { algorithm, before, after } in rows {
        let because = match *algorithm {
            "fixed_window" => "a new window starts from zero: twice the limit within a second",
            "sliding_window_log" => "never more than the limit in any window, wherever it starts",
            "sliding_window_counter" => "the window before still counts, for the part of it that is in sight",
            _ => "what has trickled back since the bucket was emptied",
        };
        line(&format!("{algorithm:24}{before:>8}{after:>8}{:>16}   {because}", before + after));
    }
}

/// Holds the numbers against what the algorithms promise.
fn check(stack: &Stack, row: &Row, key: &str, times: &Times) -> Result<(), String> {
    let Row { algorithm, before, after } = row;
    // How many of the limit come back in this time: at most by the longest time that fits, at least by the shortest.
    let share = |time: Duration| (LIMIT as u128 * time.as_micros() / WINDOW.as_micros()) as usize;
    let expected = match *algorithm {
        "fixed_window" => LIMIT..=LIMIT,
        "sliding_window_log" => 0..=0,
        "sliding_window_counter" => share(AFTER)..=share(times.since_edge),
        // The bucket is empty when the last request of the first half is taken, which is before the edge.
        _ => share(AFTER)..=share(times.whole),
    };
    if *before != LIMIT || !expected.contains(after) {
        return Err(format!(
            "{algorithm}: {before} and {after} got through instead of {LIMIT} and {} to {}",
            expected.start(),
            expected.end()
        ));
    }
    let path = format!("/{algorithm}");
    let seen = stack.upstream.seen().iter().filter(|seen| seen.path == path && seen.all("x-api-key") == [key]).count();
    if seen != before + after {
        return Err(format!("{algorithm}: the upstream saw {seen} requests instead of {}", before + after));
    }
    Ok(())
}

//! What the documents tell is run: every configuration, every command, and the demo.

use std::path::PathBuf;
use std::process::{Command, Output};

use harness::{Envoy, EnvoyOptions, Redis, Service, Store, workspace};
use serde_json::Value;

/// A fenced block: where it stands, the word after the fence, the text.
struct Block {
    place: String,
    language: String,
    text: String,
}

fn documents() -> Vec<PathBuf> {
    let root = workspace();
    let mut documents = vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("lua/README.md")];
    let docs = std::fs::read_dir(root.join("docs")).expect("docs/");
    documents.extend(
        docs.map(|entry| entry.expect("an entry").path()).filter(|path| path.extension().is_some_and(|e| e == "md")),
    );
    assert!(documents.len() >= 5, "{documents:?}");
    documents
}

fn blocks(language: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap_or_else(|error| panic!("{}: {error}", document.display()));
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    let place = format!("{}:{}", document.display(), number + 1);
                    open = Some(Block { place, language: language.to_owned(), text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", document.display());
    }
    blocks.retain(|block| block.language == language);
    blocks
}

fn yaml(block: &Block) -> Value {
    serde_saphyr::from_str(&block.text).unwrap_or_else(|error| panic!("{}: {error}", block.place))
}

fn titled(title: &str) -> Vec<Block> {
    let title = format!("# {title}\n");
    let blocks: Vec<_> = blocks("yaml").into_iter().filter(|block| block.text.starts_with(&title)).collect();
    assert!(!blocks.is_empty(), "no block starts with {title}");
    blocks
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn no_figure_is_left_to_be_filled_in() {
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("a document");
        for placeholder in ["TODO", "TBD", "XXX", "BENCH", "SIZE", "COLD", "WARM"] {
            let left = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == placeholder);
            assert!(!left, "{}: {placeholder}", document.display());
        }
    }
}

/// A comment like `// A04` in a test leads somewhere.
#[test]
fn cases_that_tests_cite_are_in_the_catalogue() {
    let catalogue = std::fs::read_to_string(workspace().join("tests/FIELD-CASES.md")).expect("the catalogue");
    let listed = |case: &str| catalogue.contains(&format!("| {case} |"));
    let mut cited = 0;
    let mut folders: Vec<_> = ["filter", "protocol", "service", "tests"].map(|folder| workspace().join(folder)).into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                for comment in text.lines().filter_map(|line| line.trim().strip_prefix("//")) {
                    for word in comment.split(|c: char| !c.is_ascii_alphanumeric()) {
                        let (family, number) = word.split_at(word.len().min(1));
                        let is_case =
                            ["A", "B", "C", "D"].contains(&family) && number.len() == 2 && number.parse::<u8>().is_ok();
                        assert!(!is_case || listed(word), "{}: {word}", path.display());
                        cited += usize::from(is_case);
                    }
                }
            }
        }
    }
    assert!(cited > 20, "{cited}");
}

#[test]
fn every_yaml_block_says_what_it_is() {
    let known = titled("weir.yaml").len() + titled("plug-in configuration").len();
    assert_eq!(
        blocks("yaml").len(),
        known,
        "a YAML block of a document starts with `# weir.yaml` or `# plug-in configuration`"
    );
}

#[test]
fn policy_files_are_accepted() {
    for block in titled("weir.yaml") {
        let file = std::env::temp_dir().join(format!("weir-docs-{}.yaml", std::process::id()));
        std::fs::write(&file, &block.text).expect("a file");
        let weir = workspace().join("dist/weir");
        let output = Command::new(weir).arg("check-config").arg(&file).output().expect("dist/weir: run `make build`");
        std::fs::remove_file(&file).expect("the file");
        assert!(output.status.success(), "{}: {}", block.place, said(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plug_in_configurations_are_accepted() {
    for block in titled("plug-in configuration") {
        let options = EnvoyOptions { plugin: Some(yaml(&block)), ..EnvoyOptions::default() };
        if let Err(log) = Envoy::try_start(options).await {
            panic!("{}: {log}", block.place);
        }
    }
}

/// `curl` asks a service with the README's policies; `make` targets exist.
#[tokio::test(flavor = "multi_thread")]
async fn commands_work_as_written() {
    let redis = Redis::start().await;
    let mut policy_file = yaml(&titled("weir.yaml")[0]);
    // A test machine may stall for longer than a sensible deadline.
    policy_file["store"]["timeout"] = "5s".into();
    let service = Service::start(&policy_file.to_string(), Store::Redis(&redis)).await;
    let mut commands = 0;
    for block in blocks("console") {
        for command in block.text.lines().filter(|line| !line.is_empty()) {
            commands += 1;
            let run = if command.starts_with("make ") {
                command.replacen("make ", "make --dry-run ", 1)
            } else {
                assert!(command.starts_with("curl -s "), "{}: how is this tested? {command}", block.place);
                command
                    .replacen("curl -s ", "curl -sS --fail ", 1)
                    .replace("127.0.0.1:8080", &format!("127.0.0.1:{}", service.check_port()))
            };
            let output = Command::new("bash").args(["-c", &run]).current_dir(workspace()).output().expect("bash");
            assert!(output.status.success(), "{}: {command}: {}", block.place, said(&output));
            if command.contains("/v1/check") {
                let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
                assert_eq!(answer["allowed"], true, "{answer}");
            }
        }
    }
    assert!(commands >= 4, "{commands}");
}

/// The answers that the documents show have the members of real ones.
#[tokio::test(flavor = "multi_thread")]
async fn json_blocks_look_like_real_answers() {
    let service = Service::start(&yaml(&titled("weir.yaml")[0]).to_string(), Store::Memory).await;
    let real = service.check("per-key", "org_1", 1).await.json();
    let blocks = blocks("json");
    assert!(!blocks.is_empty());
    for block in blocks {
        let shown: Value = serde_json::from_str(&block.text).unwrap_or_else(|error| panic!("{}: {error}", block.place));
        let names = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&shown), names(&real), "{}", block.place);
        assert_eq!(names(&shown["limits"][0]), names(&real["limits"][0]), "{}", block.place);
    }
}

/// `docs/algorithms.md` shows every picture of its folder, and no other.
#[test]
fn every_picture_is_shown_and_every_shown_picture_exists() {
    let docs = workspace().join("docs");
    let page = std::fs::read_to_string(docs.join("algorithms.md")).expect("the page: run `make evidence`");
    let mut shown: Vec<String> = page
        .split("](algorithms/")
        .skip(1)
        .map(|rest| rest.split_once(')').expect("the link is closed").0.to_owned())
        .collect();
    shown.sort();
    let folder = std::fs::read_dir(docs.join("algorithms")).expect("the pictures: run `make evidence`");
    let mut pictures: Vec<String> =
        folder.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name in UTF-8")).collect();
    pictures.sort();
    assert!(!pictures.is_empty());
    assert_eq!(shown, pictures);
    for picture in pictures {
        let svg = std::fs::read_to_string(docs.join("algorithms").join(&picture)).expect("the picture");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{picture}");
    }
}

/// The figures on the algorithms that the README has are those of `docs/algorithms.md`.
#[test]
fn the_readme_repeats_what_was_measured() {
    let root = workspace();
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    let page = std::fs::read_to_string(root.join("docs/algorithms.md")).expect("docs/algorithms.md");
    let cells = |text: &str, row: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("no row {row}"));
        line.split('|').map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
    };
    let worst = cells(&page, "| **adversary of each** |");
    let short = cells(&page, "| **adversary of each, in a tenth** |");
    for (row, column) in [
        ("| `fixed_window` |", 1),
        ("| `sliding_window_log` |", 2),
        ("| `sliding_window_counter` |", 3),
        ("| `token_bucket`, burst = limit |", 4),
        ("| `token_bucket`, burst = limit / 10 |", 5),
    ] {
        assert_eq!(cells(&readme, row)[1..3], [worst[column].clone(), short[column].clone()], "{row}");
    }
}

/// The whole demo; it checks its own numbers and ends with 0 only if they hold.
#[test]
fn the_demo_tells_the_truth() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir-demo")).output().expect("the demo");
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for shown in [
        "429",
        "retry-after",
        "ratelimit",
        "fixed_window",
        "sliding_window_log",
        "sliding_window_counter",
        "token_bucket",
        "make up",
    ] {
        assert!(text.contains(shown), "{shown} is missing in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours where no terminal is");
}

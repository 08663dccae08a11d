//! Lines to the server. Answers are never lost: while the server does not read them, no further frame is taken from it. Entries of the egress log
//! have a queue with a bound; beyond it the sender counts what it could not report.

use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use tokio::sync::mpsc;

const ANSWERS_MAX: usize = 64;
const ENTRIES_MAX: usize = 8192;

/// A frame that is more than an answer.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Report {
    Ready,
    Entry(crate::model::Entry),
    EntriesDropped { sandbox: String, count: u64, sent: u64, received: u64 },
    Trouble { message: String },
}

/// The answer to one frame.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Answer {
    Ok { seq: u64 },
    Error { seq: u64, message: String },
}

#[derive(Clone)]
pub struct Output {
    answers: mpsc::Sender<String>,
    entries: mpsc::Sender<String>,
}

impl Output {
    /// Writes lines to `to` in a task of its own, answers first.
    pub fn start(to: impl Write + Send + 'static) -> Output {
        let (answers, mut next_answer) = mpsc::channel::<String>(ANSWERS_MAX);
        let (entries, mut next_entry) = mpsc::channel::<String>(ENTRIES_MAX);
        let to = Arc::new(std::sync::Mutex::new(to));
        tokio::spawn(async move {
            loop {
                let line = tokio::select! {
                    biased;
                    Some(line) = next_answer.recv() => line,
                    Some(line) = next_entry.recv() => line,
                    else => return,
                };
                let mut lines = line;
                while lines.len() < 64 * 1024 {
                    match next_answer.try_recv().or_else(|_| next_entry.try_recv()) {
                        Ok(line) => lines.push_str(&line),
                        Err(_) => break,
                    }
                }
                let to = to.clone();
                // A pipe whose reader is slow blocks a thread of its own, not the connections.
                let write = move || {
                    let mut to = to.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    to.write_all(lines.as_bytes()).and_then(|()| to.flush())
                };
                if !matches!(tokio::task::spawn_blocking(write).await, Ok(Ok(()))) {
                    return;
                }
            }
        });
        Output { answers, entries }
    }

    /// Waits until there is room.
    pub async fn answer(&self, answer: &Answer) {
        let _ = self.answers.send(line(answer)).await;
    }

    /// Waits until there is room: for what must not be lost.
    pub async fn announce(&self, report: &Report) {
        let _ = self.answers.send(line(report)).await;
    }

    /// Says whether there was room.
    pub fn report(&self, report: &Report) -> bool {
        self.entries.try_send(line(report)).is_ok()
    }

    /// For the operator: on standard error, and to the server if there is room.
    pub fn trouble(&self, message: impl Into<String>) {
        let message = message.into();
        eprintln!("atoll-egress: {message}");
        self.report(&Report::Trouble { message });
    }
}

fn line(frame: &impl Serialize) -> String {
    let mut line = serde_json::to_string(frame).expect("frames have no maps and no failing types");
    line.push('\n');
    line
}

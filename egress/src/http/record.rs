//! The entry of one request. It is reported when its last body is gone, however that ends.

use super::activity::Activity;
use crate::connection::Connection;
use crate::model::{Decision, Entry, Protocol};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Of a path in an entry.
const PATH_BYTES_MAX: usize = 1024;
const METHOD_BYTES_MAX: usize = 32;

pub struct Record {
    connection: Connection,
    activity: Arc<Activity>,
    started: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    told: Mutex<Told>,
}

struct Told {
    decision: Decision,
    protocol: Protocol,
    host: Option<String>,
    port: u16,
    address: Option<IpAddr>,
    method: Option<String>,
    path: Option<String>,
    status: Option<u16>,
    rule: Option<String>,
    reason: Option<String>,
    secrets: BTreeSet<String>,
}

impl Record {
    pub fn new(connection: Connection, activity: Arc<Activity>, protocol: Protocol) -> Arc<Record> {
        activity.begin();
        let port = connection.port();
        Arc::new(Record {
            connection,
            activity,
            started: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            told: Mutex::new(Told {
                decision: Decision::Allowed,
                protocol,
                host: None,
                port,
                address: None,
                method: None,
                path: None,
                status: None,
                rule: None,
                reason: None,
                secrets: BTreeSet::new(),
            }),
        })
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Method and path as the sandbox sent them.
    pub fn request(&self, method: &str, path: &str) {
        let mut told = self.told();
        told.method = Some(cut(method, METHOD_BYTES_MAX));
        told.path = Some(cut(path, PATH_BYTES_MAX));
    }

    pub fn host(&self, host: &str, port: u16) {
        let mut told = self.told();
        (told.host, told.port) = (Some(host.to_owned()), port);
    }

    pub fn port(&self) -> u16 {
        self.told().port
    }

    pub fn address(&self, address: IpAddr) {
        self.told().address = Some(address);
    }

    pub fn protocol(&self, protocol: Protocol) {
        self.told().protocol = protocol;
    }

    pub fn rule(&self, decision: Decision, rule: Option<&str>) {
        let mut told = self.told();
        (told.decision, told.rule) = (decision, rule.map(str::to_owned));
    }

    pub fn refuse(&self, status: u16, reason: &str) {
        self.end(Decision::Denied, Some(status), reason);
    }

    pub fn fail(&self, status: Option<u16>, reason: &str) {
        self.end(Decision::Failed, status, reason);
    }

    /// Why an allowed request ended early.
    pub fn note(&self, reason: &str) {
        self.told().reason.get_or_insert_with(|| reason.to_owned());
    }

    fn end(&self, decision: Decision, status: Option<u16>, reason: &str) {
        let mut told = self.told();
        told.decision = decision;
        told.status = status.or(told.status);
        told.reason = Some(reason.to_owned());
    }

    pub fn status(&self, status: u16) {
        self.told().status = Some(status);
    }

    pub fn secret(&self, name: &str) {
        let mut told = self.told();
        if !told.secrets.contains(name) {
            told.secrets.insert(name.to_owned());
        }
    }

    pub fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
        self.activity.touch();
    }

    pub fn add_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Relaxed);
        self.activity.touch();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.activity.end();
        let told = self.told.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.connection.report(Entry {
            sandbox: String::new(),
            time: 0,
            decision: told.decision,
            protocol: told.protocol,
            host: told.host.take(),
            address: told.address,
            port: told.port,
            method: told.method.take(),
            path: told.path.take(),
            status: told.status,
            rule: told.rule.take(),
            reason: told.reason.take(),
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            secrets: std::mem::take(&mut told.secrets).into_iter().collect(),
            ms: self.started.elapsed().as_millis() as u64,
        });
    }
}

fn cut(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

//! What is derived from a plan when it is first needed, and shared by the connections of its sandbox.

use crate::authority::Authority;
use crate::model::Plan;
use crate::substitute::HostSecrets;
use crate::tls;
use rustls::ServerConfig;
use std::collections::{BTreeSet, HashMap};
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Hosts of which something is kept. Beyond them the oldest certificate goes, and secrets are looked up each time.
pub const HOSTS_MAX: usize = 256;
/// A certificate is made anew well before it expires.
const LEAF_AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Bodies of one sandbox that are in memory at once.
pub const BUFFERED_BYTES_MAX: usize = 8 * 1024 * 1024;
const BUFFER_UNIT: usize = 1024;

pub struct PlanState {
    authority: OnceLock<Option<Authority>>,
    leaves: Mutex<HashMap<String, (Instant, Arc<ServerConfig>)>>,
    secrets: Mutex<HashMap<String, Arc<HostSecrets>>>,
    /// Host → the secrets that went out to it, by their index among those for the host.
    sent: Mutex<HashMap<String, BTreeSet<usize>>>,
    buffers: Arc<Semaphore>,
}

impl Default for PlanState {
    fn default() -> Self {
        PlanState {
            authority: OnceLock::new(),
            leaves: Mutex::default(),
            secrets: Mutex::default(),
            sent: Mutex::default(),
            buffers: Arc::new(Semaphore::new(BUFFERED_BYTES_MAX / BUFFER_UNIT)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PlanState {
    /// How this process answers as `host`.
    pub fn server_config(&self, plan: &Plan, host: &str) -> Result<Arc<ServerConfig>> {
        let now = Instant::now();
        if let Some((made, config)) = lock(&self.leaves).get(host) {
            if now.duration_since(*made) < LEAF_AGE_MAX {
                return Ok(config.clone());
            }
        }
        let read = || plan.authority.as_ref().and_then(|text| Authority::read(&text.certificate, &text.key).ok());
        let authority = self.authority.get_or_init(read).as_ref();
        let authority =
            authority.ok_or_else(|| Error::new(ErrorKind::NotFound, "the sandbox has no certificate authority"))?;
        let config = Arc::new(tls::server_config(authority, host)?);
        let mut leaves = lock(&self.leaves);
        if leaves.len() >= HOSTS_MAX {
            let oldest = leaves.iter().min_by_key(|(_, (made, _))| *made).map(|(host, _)| host.clone());
            oldest.map(|host| leaves.remove(&host));
        }
        leaves.insert(host.to_owned(), (now, config.clone()));
        Ok(config)
    }

    pub fn secrets(&self, plan: &Plan, host: &str) -> Arc<HostSecrets> {
        let mut known = lock(&self.secrets);
        if let Some(secrets) = known.get(host) {
            return secrets.clone();
        }
        let secrets = Arc::new(HostSecrets::new(plan, host));
        if known.len() < HOSTS_MAX {
            known.insert(host.to_owned(), secrets.clone());
        }
        secrets
    }

    /// Keeps in mind that these secrets went out to a host: no later response of it shows them.
    pub fn mark_sent(&self, host: &str, secrets: impl Iterator<Item = usize>) {
        let mut sent = lock(&self.sent);
        if sent.len() < HOSTS_MAX || sent.contains_key(host) {
            sent.entry(host.to_owned()).or_default().extend(secrets);
        }
    }

    pub fn sent(&self, host: &str) -> Vec<usize> {
        lock(&self.sent).get(host).map(|secrets| secrets.iter().copied().collect()).unwrap_or_default()
    }

    /// Waits until a body of this length may be in memory. At most `BUFFERED_BYTES_MAX` may be asked for.
    pub async fn buffer(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.buffers.clone().acquire_many_owned(bytes.div_ceil(BUFFER_UNIT).max(1) as u32).await.ok()
    }
}

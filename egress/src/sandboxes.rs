//! Sandboxes that the server has told of, by id and by address.

use crate::compiled::CompiledPlan;
use crate::connection::{self, Inner};
use crate::dns::budget::Budget;
use crate::egress::Egress;
use crate::entries::EntryRate;
use crate::limits::Limits;
use crate::model::{Entry, Layer, Mode, Plan};
use crate::output::Output;
use crate::pins::Pins;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{watch, Semaphore};

pub use crate::connection::Connection;

pub struct Sandbox {
    pub id: String,
    pub address: IpAddr,
    plan: watch::Sender<Arc<CompiledPlan>>,
    open: Mutex<HashMap<u64, Weak<Inner>>>,
    pub deciding: Arc<Semaphore>,
    pub questions: Arc<Semaphore>,
    /// For names that resolvers are asked for.
    pub asking: Semaphore,
    pins: Mutex<Pins>,
    names: Mutex<Budget>,
    entries: Mutex<EntryRate>,
}

impl Sandbox {
    fn new(id: String, address: IpAddr, plan: CompiledPlan, limits: &Limits) -> Sandbox {
        Sandbox {
            id,
            address,
            plan: watch::Sender::new(Arc::new(plan)),
            open: Mutex::default(),
            deciding: Arc::new(Semaphore::new(limits.deciding_per_sandbox_max)),
            questions: Arc::new(Semaphore::new(limits.dns_in_flight_per_sandbox_max)),
            asking: Semaphore::new(limits.dns_in_flight_per_sandbox_max),
            pins: Mutex::new(Pins::new(limits.pins_per_sandbox_max)),
            names: Mutex::new(Budget::new(limits.dns_names_burst, limits.dns_names_per_second)),
            entries: Mutex::new(EntryRate::new(limits.entries_per_second_max)),
        }
    }

    pub fn plan(&self) -> Arc<CompiledPlan> {
        self.plan.borrow().clone()
    }

    /// Told of each plan after the one that is in force now.
    pub fn plans(&self) -> watch::Receiver<Arc<CompiledPlan>> {
        self.plan.subscribe()
    }

    pub fn pins(&self) -> MutexGuard<'_, Pins> {
        lock(&self.pins)
    }

    /// Whether one more name that is not in the cache may be asked for.
    pub fn may_ask(&self) -> bool {
        lock(&self.names).take(Instant::now())
    }

    pub fn report(&self, mut entry: Entry, output: &Output) {
        entry.sandbox.clone_from(&self.id);
        entry.time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        lock(&self.entries).report(entry, output, Instant::now());
    }

    /// As `report`, for a refused name: once in a minute.
    pub fn report_name(&self, name: &str, entry: Entry, output: &Output) {
        if lock(&self.entries).first_in_minute(name, Instant::now()) {
            self.report(entry, output);
        }
    }

    fn replace(&self, plan: CompiledPlan) {
        self.plan.send_replace(Arc::new(plan));
        self.each_open(Inner::judge_again);
    }

    /// Cuts all connections and forgets the values.
    fn end(&self) {
        let nothing = Layer { source: "none".into(), mode: Mode::None, log_only: false, allow: vec![], deny: vec![] };
        let plan = Plan { layers: vec![nothing], secrets: vec![], authority: None, connections_max: Some(0) };
        self.plan.send_replace(Arc::new(CompiledPlan::compile(plan).expect("a plan without rules compiles")));
        self.each_open(|open| open.end(connection::GONE));
    }

    fn each_open(&self, act: impl Fn(&Inner)) {
        let open: Vec<_> = lock(&self.open).values().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|connection| act(connection));
    }

    pub(crate) fn add(&self, number: u64, connection: Weak<Inner>, max: usize) -> bool {
        let mut open = lock(&self.open);
        let room = open.len() < max;
        if room {
            open.insert(number, connection);
        }
        room
    }

    pub(crate) fn remove(&self, number: u64) {
        lock(&self.open).remove(&number);
    }

    pub fn open(&self) -> usize {
        lock(&self.open).len()
    }
}

#[derive(Default)]
pub struct Sandboxes {
    known: RwLock<Known>,
    /// Open connections of all.
    pub(crate) connections: AtomicUsize,
}

#[derive(Default)]
struct Known {
    by_id: HashMap<String, Arc<Sandbox>>,
    by_address: HashMap<IpAddr, Arc<Sandbox>>,
}

impl Sandboxes {
    pub fn at(&self, address: IpAddr) -> Option<Arc<Sandbox>> {
        self.known.read().unwrap_or_else(|poisoned| poisoned.into_inner()).by_address.get(&address).cloned()
    }

    /// Puts a plan in force. Who had the address before, or this sandbox at another, is dropped.
    pub fn put(&self, id: &str, address: IpAddr, plan: CompiledPlan, limits: &Limits) {
        let mut known = self.known.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let same = known.by_id.get(id).filter(|sandbox| sandbox.address == address).cloned();
        let Some(sandbox) = same else {
            let before = known.by_address.get(&address).map(|other| other.id.clone());
            for other in before.iter().map(String::as_str).chain([id]) {
                known.remove(other);
            }
            let sandbox = Arc::new(Sandbox::new(id.to_owned(), address, plan, limits));
            known.by_id.insert(id.to_owned(), sandbox.clone());
            known.by_address.insert(address, sandbox);
            return;
        };
        drop(known);
        sandbox.replace(plan);
    }

    /// A sandbox that is not known is dropped already.
    pub fn drop(&self, id: &str) {
        self.known.write().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(id);
    }

    /// How many connections a sandbox may have open: when the process is nearly full, an equal share of the whole.
    pub(crate) fn share(&self, egress: &Egress, plan: &CompiledPlan) -> usize {
        let limits = &egress.limits;
        let own = plan.plan.connections_max.unwrap_or(usize::MAX).min(limits.connections_per_sandbox_max);
        let all = self.connections.load(Ordering::Relaxed);
        if all < limits.connections_max / 4 * 3 {
            return own;
        }
        let known = self.known.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let active = known.by_id.values().filter(|sandbox| sandbox.open() > 0).count().max(1);
        own.min((limits.connections_max / active).max(1))
    }

    pub fn tell_dropped(&self, output: &Output) {
        let known = self.known.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        for sandbox in known.by_id.values() {
            lock(&sandbox.entries).tell_dropped(&sandbox.id, output);
        }
    }
}

impl Known {
    fn remove(&mut self, id: &str) {
        if let Some(sandbox) = self.by_id.remove(id) {
            self.by_address.remove(&sandbox.address);
            sandbox.end();
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

use super::*;
use crate::files::uploads::random_hex;
use std::thread;

/// A watch of a new folder, run by hand: each step reads what its changes gave.
fn told(budget: &WatchBudget, steps: &[&dyn Fn(&Path)]) -> Vec<Vec<String>> {
    let top = std::env::temp_dir().join(format!("atoll-watch-{}", random_hex(8).unwrap()));
    fs::create_dir(&top).unwrap();
    let mut watcher = Watcher::new(&top, true, budget).unwrap();
    watcher.add::<Vec<u8>>(&top, &mut None).unwrap();
    let all = steps.iter().map(|step| {
        step(&top);
        let mut bytes = Vec::new();
        let mut entries = Entries::new(&mut bytes);
        // The second look ends a half of a rename.
        let end = watcher.tell(&mut entries).unwrap().or_else(|| watcher.tell(&mut entries).unwrap());
        entries.end().unwrap();
        events(&bytes, &top).into_iter().chain(end.map(|end| format!("ended {}", end))).collect()
    });
    let all = all.collect();
    let _ = fs::remove_dir_all(&top);
    all
}

fn events(mut bytes: &[u8], top: &Path) -> Vec<String> {
    let (mut all, mut payload) = (Vec::new(), Vec::new());
    while let Some(kind::ENTRIES) = frame::read_frame(&mut bytes, &mut payload).unwrap() {
        for value in json::parse(std::str::from_utf8(&payload).unwrap()).unwrap().as_list().unwrap() {
            let of =
                |key: &str| value.get(key).and_then(Value::as_text).unwrap_or("").replace(top.to_str().unwrap(), "");
            all.push(format!("{} {} {}", of("type"), of("path"), of("from")).trim_end().to_string());
        }
    }
    all
}

#[test]
fn changes_are_told_below_folders_that_are_new_or_moved() {
    let budget = WatchBudget::default();
    let all = told(
        &budget,
        &[
            &|top| fs::create_dir_all(top.join("a/b")).unwrap(),
            &|top| {
                fs::write(top.join("a/b/file"), "x").unwrap();
                fs::write(top.join("a/b/file"), "xy").unwrap();
            },
            &|top| fs::rename(top.join("a"), top.join("c")).unwrap(),
            &|top| fs::write(top.join("c/b/file"), "xyz").unwrap(),
            &|top| {
                fs::write(top.join(".x.atoll-0123456789abcdef"), "x").unwrap();
                fs::rename(top.join(".x.atoll-0123456789abcdef"), top.join("x")).unwrap();
            },
            &|top| fs::rename(top.join("c"), std::env::temp_dir().join(top.with_extension("gone"))).unwrap(),
            &|top| {
                fs::write(top.with_extension("gone").join("b/other"), "").unwrap();
                fs::remove_dir_all(top.with_extension("gone")).unwrap();
            },
            &|top| fs::remove_dir_all(top).unwrap(),
        ],
    );
    assert_eq!(all[0][..2], ["created /a", "created /a/b"]);
    assert_eq!(all[1], ["created /a/b/file", "modified /a/b/file"]);
    assert_eq!(all[2], ["moved /c /a"]);
    assert_eq!(all[3], ["modified /c/b/file"]);
    assert_eq!(all[4], ["created /x"]);
    assert_eq!(all[5], ["removed /c"]);
    assert!(all[6].is_empty());
    assert_eq!(all[7], ["removed /x", "ended removed"]);
    assert_eq!((budget.watches.load(Ordering::SeqCst), budget.folders.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn an_overflow_is_told_and_the_watch_goes_on() {
    let budget = WatchBudget::default();
    let most: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let all = told(
        &budget,
        &[
            &|top| {
                for number in 0..=most / 2 {
                    let (one, other) = (top.join(number.to_string()), top.join(format!("{}-", number)));
                    fs::write(&one, "").unwrap();
                    fs::rename(one, other).unwrap();
                }
                fs::create_dir(top.join("late")).unwrap();
            },
            &|top| fs::write(top.join("late/file"), "").unwrap(),
        ],
    );
    assert_eq!(all[0].iter().filter(|event| *event == "lost").count(), 1);
    assert_eq!(all[1], ["created /late/file"]);
}

#[test]
fn watches_and_folders_are_bounded_and_given_back() {
    let budget = WatchBudget::default();
    let top = std::env::temp_dir().join(format!("atoll-watch-{}", random_hex(8).unwrap()));
    fs::create_dir(&top).unwrap();
    {
        let mut most = Share::of(&budget.watches);
        while most.grow(WATCHES_MAX) {}
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(watch(&top, false, &budget, &one, &mut Vec::new()).unwrap_err().code, "unavailable");
        let mut folders = Share::of(&budget.folders);
        while folders.grow(FOLDERS_MAX) {}
        most.shrink();
        assert_eq!(watch(&top, false, &budget, &one, &mut Vec::new()).unwrap_err().code, "too_large");
    }
    let (one, other) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| watch(&top, false, &budget, &one, &mut &one));
        let (mut line, mut reader) = (String::new(), std::io::BufReader::new(&other));
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        assert_eq!((line.as_str(), budget.folders.load(Ordering::SeqCst)), ("{\"ok\":true}\n", 1));
        other.shutdown(std::net::Shutdown::Both).unwrap();
        running.join().unwrap().unwrap();
    });
    assert_eq!((budget.watches.load(Ordering::SeqCst), budget.folders.load(Ordering::SeqCst)), (0, 0));
    fs::remove_dir(&top).unwrap();
    assert_eq!(watch(&top, false, &budget, &one, &mut Vec::new()).unwrap_err().code, "not_found");
}

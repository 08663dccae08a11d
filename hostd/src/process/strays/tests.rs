use super::*;
use std::process::{Child, Command, Stdio};

fn argv(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// An idle process that shows this name and these arguments, in a pid namespace of its own or in the test's.
fn imitation(words: &[&str], own_namespace: bool) -> Child {
    let mut command = Command::new(if own_namespace { "unshare" } else { "bash" });
    if own_namespace {
        command.args(["--pid", "--fork", "--kill-child", "bash"]);
    }
    command.args(["-c", "exec -a \"$0\" bash -c 'read -r line' \"$@\""]).args(words);
    command.stdin(Stdio::piped()).spawn().expect("runs")
}

fn until_found(is_wanted: impl Fn(&[Vec<u8>], &Path) -> bool) -> Vec<Stray> {
    loop {
        let found = of_this_host(&is_wanted).expect("reads");
        if !found.is_empty() {
            return found;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_tool_is_told_by_its_name_and_a_path_among_its_arguments() {
    let paths = [PathBuf::from("/run/atoll-1")];
    assert!(is_tool(&argv(&["/usr/bin/btrfs", "subvolume", "delete", "/run/atoll-1/pool/x"]), &paths));
    assert!(is_tool(&argv(&["mount", "/data/pool.img", "/run/atoll-1"]), &paths));
    assert!(!is_tool(&argv(&["btrfs", "subvolume", "delete", "/run/atoll-12/pool/x"]), &paths));
    assert!(!is_tool(&argv(&["atoll-hostd", "serve", "--socket", "/run/atoll-1/hostd.sock"]), &paths));
    let freeze = r#"{"groups":["/cgroup/a","/run/atoll-1/a"],"op":"freeze","protocol":1}"#;
    assert!(is_tool(&argv(&["/opt/atoll-hostd", "perform", freeze]), &paths));
    assert!(is_tool(&argv(&["atoll-hostd", "perform", r#"{"layers":[{"path":"/run/atoll-1/b"}]}"#]), &paths));
    assert!(!is_tool(&argv(&["atoll-hostd", "perform", &freeze.replace("/run/atoll-1/", "/run/atoll-12/")]), &paths));
    assert!(!is_tool(&argv(&["atoll-hostd", "perform", "/run/atoll-1/a"]), &paths));
    assert!(!is_tool(&argv(&["/run/atoll-1/btrfs", ""]), &paths));
    assert!(!is_tool(&argv(&["sleep", "/run/atoll-1"]), &paths));
    assert!(!is_tool(&argv(&[""]), &paths));
}

#[test]
fn a_dump_is_told_by_the_root_of_runc() {
    let root = Path::new("/run/atoll-1/runc");
    assert!(is_dump(&argv(&["runc", "--root", "/run/atoll-1/runc", "restore", "--detach"]), root));
    assert!(!is_dump(&argv(&["runc", "--root", "/run/atoll-2/runc", "restore"]), root));
    assert!(!is_dump(&argv(&["runc", "--root", "/run/atoll-1/runc", "run"]), root));
    assert!(is_criu(&argv(&["criu: dump --rpc"])) && is_criu(&argv(&["/opt/criu", "swrk", "3"])));
    assert!(!is_criu(&argv(&["criu-ns"])));
}

#[test]
fn a_process_of_another_namespace_is_never_found_and_one_of_this_is_ended() {
    let folder = std::env::temp_dir().join(format!("atoll-hostd-strays-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("made");
    let path = folder.to_str().expect("text").to_owned();
    let is_btrfs = |argv: &[Vec<u8>], _: &Path| is_tool(argv, std::slice::from_ref(&folder));
    let mut foreign = imitation(&["btrfs", &path], true);
    // A search without the check of the namespace finds it.
    let is_up = || {
        let pids = fs::read_dir("/proc").expect("reads").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| !is_of_this_host(*pid)).any(|pid| {
            let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<Vec<u8>> = text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
            is_btrfs(&words, Path::new("/"))
        })
    };
    while !is_up() {
        std::thread::yield_now();
    }
    let mut own = imitation(&["btrfs", &path], false);
    let found = until_found(is_btrfs);
    assert_eq!(found.iter().map(|stray| stray.pid).collect::<Vec<_>>(), [own.id() as i32]);
    assert!(end(&found).is_ok());
    assert!(!own.wait().expect("waited").success());
    assert!(is_up(), "the other one lives on");
    assert!(of_this_host(is_btrfs).expect("reads").is_empty());
    let _ = foreign.kill();
    let _ = foreign.wait();
    fs::remove_dir_all(&folder).expect("removed");
}

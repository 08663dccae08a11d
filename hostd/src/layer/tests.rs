//! Hostile and ordinary layers, unpacked as root into a folder beside a file that none of them may touch.

use super::tree::{Limits, Report, Tree};
use super::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

const LIMITS: Limits = Limits { files: 1000, depth: 20, folder_bytes: 10_000 };

/// A folder of one test, with the `layer` to unpack into.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("atoll-layer-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("layer")).expect("made");
        fs::write(path.join("secret"), "secret").expect("written");
        Scratch(path)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join("layer").join(path)
    }

    fn unpack(&self, archive: &[u8]) -> Result<Report, String> {
        self.unpack_over(archive, &[], LIMITS)
    }

    fn unpack_over(&self, archive: &[u8], lowers: &[PathBuf], limits: Limits) -> Result<Report, String> {
        let mut tree = Tree::open(&self.path(""), lowers, false, limits).map_err(|error| error.to_string())?;
        let mut tar = Tar::new(archive);
        let mut add_all = || -> Result<(), Error> {
            while let Some(entry) = tar.next_entry()? {
                tree.add(&entry, &mut tar.content())?;
            }
            Ok(())
        };
        add_all().map_err(|error| error.to_string())?;
        assert_eq!(fs::read(self.0.join("secret")).expect("there"), b"secret");
        tree.finish().map_err(|error| error.to_string())
    }

    fn refusal(&self, archive: &[u8]) -> String {
        let refusal = self.unpack(archive).expect_err("refused");
        assert_eq!(fs::read(self.0.join("secret")).expect("there"), b"secret");
        refusal
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone)]
struct Header([u8; 512]);

impl Header {
    fn new(kind: u8, path: &str, size: usize) -> Header {
        let mut header = Header([0; 512]);
        header.put(0, path.as_bytes());
        header.put(100, b"0000644\0").put(108, b"0000000\0").put(116, b"0000000\0");
        header.put(124, format!("{size:011o}\0").as_bytes()).put(136, b"14000000000\0");
        header.0[156] = kind;
        header.put(257, b"ustar\x0000");
        header
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Header {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn sealed(mut self) -> [u8; 512] {
        self.put(148, b"        ");
        let sum: u32 = self.0.iter().map(|&byte| u32::from(byte)).sum();
        self.put(148, format!("{sum:06o}\0 ").as_bytes());
        self.0
    }
}

#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn add(mut self, header: Header, content: &[u8]) -> Archive {
        self.0.extend(header.sealed());
        self.0.extend(content);
        self.0.resize((self.0.len() + 511) / 512 * 512, 0);
        self
    }

    fn file(self, path: &str, content: &str) -> Archive {
        self.add(Header::new(b'0', path, content.len()), content.as_bytes())
    }

    fn folder(self, path: &str) -> Archive {
        self.add(Header::new(b'5', path, 0), b"")
    }

    fn link(self, kind: u8, path: &str, target: &str) -> Archive {
        let mut header = Header::new(kind, path, 0);
        header.put(157, target.as_bytes());
        self.add(header, b"")
    }

    fn pax(self, records: &[(&str, &[u8])]) -> Archive {
        let mut text = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let length = (rest + 1..).find(|length| length.to_string().len() + rest == *length).expect("one");
            write!(text, "{length} {key}=").expect("written");
            text.extend(*value);
            text.push(b'\n');
        }
        self.add(Header::new(b'x', "pax", text.len()), &text)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

fn archive() -> Archive {
    Archive::default()
}

#[test]
fn files_folders_links_and_their_owners_are_made() {
    let scratch = Scratch::new("plain");
    let mut owned = Header::new(b'0', "bin/tool", 4);
    owned.put(100, b"0004755\0").put(108, b"0177777\0").put(116, b"0000144\0");
    let made = archive().folder("./bin/").add(owned, b"tool").link(b'1', "bin/twin", "bin/tool");
    let made = made.link(b'2', "lib", "/etc").file("/a/b/c", "deep").add(Header::new(b'6', "pipe", 0), b"");
    let report = scratch.unpack(&made.end()).expect("unpacked");
    assert_eq!(report.files, 8);
    let tool = fs::metadata(scratch.path("bin/tool")).expect("there");
    assert_eq!((tool.mode() & 0o7777, tool.uid(), tool.gid(), tool.nlink()), (0o4755, 65_535, 100, 2));
    assert_eq!(fs::read_link(scratch.path("lib")).expect("a link"), PathBuf::from("/etc"));
    assert_eq!(fs::read(scratch.path("a/b/c")).expect("there"), b"deep");
    assert_eq!(fs::metadata(scratch.path("a/b")).expect("there").mode() & 0o7777, 0o755);
    assert!(fs::metadata(scratch.path("pipe")).expect("there").file_type().is_fifo());
    assert_eq!(fs::metadata(scratch.path("bin")).expect("there").mtime(), 0o14000000000);
}

#[test]
fn a_link_is_followed_within_the_layer_alone() {
    let scratch = Scratch::new("links");
    let secret = scratch.0.join("secret");
    let escapes = archive().link(b'2', "out", "../../..").link(b'2', "root", scratch.0.to_str().expect("text"));
    let escapes = escapes.file("out/made", "1").file("root/secret", "2").link(b'2', "loop", "loop");
    scratch.unpack(&escapes.end()).expect("unpacked");
    assert_eq!(fs::read(scratch.path("made")).expect("within"), b"1");
    let within = scratch.path(secret.to_str().expect("text").trim_start_matches('/'));
    assert_eq!(fs::read(within).expect("within"), b"2");
    assert!(scratch.refusal(&archive().file("loop/x", "").end()).contains("too many links"));
    // The last name is never followed.
    let last = archive().link(b'2', "name", secret.to_str().expect("text")).file("name", "3").end();
    scratch.unpack(&last).expect("unpacked");
    assert_eq!(fs::read(scratch.path("name")).expect("there"), b"3");
    assert!(fs::symlink_metadata(scratch.path("name")).expect("there").is_file());
}

#[test]
fn a_folder_that_becomes_a_link_is_followed_within_the_layer() {
    let scratch = Scratch::new("swap");
    let target = scratch.0.to_str().expect("text").to_string();
    let swap = archive().folder("d").file("d/one", "1").link(b'2', "d", &target).file("d/secret", "2").end();
    scratch.unpack(&swap).expect("unpacked");
    assert!(fs::symlink_metadata(scratch.path("d")).expect("there").file_type().is_symlink());
}

#[test]
fn paths_and_hard_links_out_of_the_layer_are_refused() {
    let scratch = Scratch::new("out");
    assert!(scratch.refusal(&archive().file("../secret", "x").end()).contains("out of the layer"));
    assert!(scratch.refusal(&archive().file("a/../../secret", "x").end()).contains("out of the layer"));
    let secret = scratch.0.join("secret");
    for target in ["/etc/passwd", "etc/passwd", secret.to_str().expect("text")] {
        assert!(scratch.refusal(&archive().link(b'1', "x", target).end()).contains("no file of the same layer"));
    }
    assert!(scratch.refusal(&archive().link(b'1', "x", "../secret").end()).contains("out of the layer"));
    let over_link = archive().link(b'2', "up", "/..").link(b'1', "x", "up/secret").end();
    assert!(scratch.refusal(&over_link).contains("no file of the same layer"));
    let to_folder = archive().folder("d").link(b'1', "x", "d").end();
    assert!(scratch.refusal(&to_folder).contains("no file of the same layer"));
    assert!(scratch.refusal(&archive().file("f", "").file("f/x", "").end()).contains("no folder"));
}

#[test]
fn devices_and_what_lies_where_a_sandbox_has_its_own_are_left_out() {
    let scratch = Scratch::new("devices");
    let devices = archive().add(Header::new(b'3', "etc/mem", 0), b"").add(Header::new(b'4', "disk", 0), b"");
    let own = devices.file("dev/null", "x").link(b'2', "proc", "/etc").file(".atoll/guest", "x").file(".wh.sys", "");
    let own = own.link(b'2', "etc/hosts", "/proc/self").file("etc/.wh.machine-id", "").folder("etc/resolv.conf");
    let report = scratch.unpack(&own.end()).expect("unpacked");
    assert_eq!(report.devices, 2);
    let mut names: Vec<_> =
        fs::read_dir(scratch.path("")).expect("there").map(|entry| entry.expect("one").file_name()).collect();
    names.sort();
    assert_eq!(names, ["etc"]);
    assert_eq!(fs::read_dir(scratch.path("etc")).expect("there").count(), 0);
}

#[test]
fn whiteouts_hide_what_is_below_and_nothing_of_their_own_layer() {
    let scratch = Scratch::new("whiteouts");
    let made = archive().file("etc/.wh.gone", "").file("etc/new", "").file("etc/.wh.new", "").folder("back");
    let made = made.file(".wh.back", "").file("var/.wh..wh..opq", "").file("var/kept", "").file(".wh..wh.plnk", "");
    let made = made.file(".wh.again", "").folder("again").file(".wh.over", "").file("over/x", "");
    let report = scratch.unpack(&made.end()).expect("unpacked");
    assert!(!report.is_opaque);
    let gone = fs::symlink_metadata(scratch.path("etc/gone")).expect("there");
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert!(fs::metadata(scratch.path("etc/new")).expect("there").is_file());
    let root = sys::folder::Folder::open(&scratch.path("")).expect("opened");
    for name in ["back", "var", "again", "over"] {
        let folder = root.folder(name.as_ref()).expect("a folder");
        assert!(sys::entry::has_attribute(&folder, b"trusted.overlay.opaque", b"y"), "{name}");
    }
    assert!(scratch.unpack(&archive().file(".wh..wh..opq", "").end()).expect("unpacked").is_opaque);
    assert!(scratch.refusal(&archive().file(".wh...", "").end()).contains("hides nothing"));
    assert!(scratch.refusal(&archive().file(".wh.", "").end()).contains("hides nothing"));
}

#[test]
fn a_missing_folder_is_made_as_the_layers_below_have_it() {
    let scratch = Scratch::new("below");
    let (low, high) = (scratch.0.join("low"), scratch.0.join("high"));
    fs::create_dir_all(low.join("usr/lib")).expect("made");
    fs::create_dir_all(low.join("tmp/hidden")).expect("made");
    fs::create_dir_all(&high).expect("made");
    fs::set_permissions(low.join("tmp"), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).expect("set");
    std::os::unix::fs::symlink("usr/lib", low.join("lib")).expect("linked");
    let made = archive().file("tmp/x", "").file("lib/libc.so", "").end();
    scratch.unpack_over(&made, &[high, low], LIMITS).expect("unpacked");
    assert_eq!(fs::metadata(scratch.path("tmp")).expect("there").mode() & 0o7777, 0o1777);
    assert!(fs::metadata(scratch.path("usr/lib/libc.so")).expect("there").is_file());
    assert!(!scratch.path("lib").exists());
}

#[test]
fn attributes_of_users_and_capabilities_stay_and_all_others_are_left_out() {
    let scratch = Scratch::new("attributes");
    let capability: &[u8] = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let records: [(&str, &[u8]); 6] = [
        ("SCHILY.xattr.user.a", b"1\n2"),
        ("SCHILY.xattr.security.capability", capability),
        ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.trusted.overlay.metacopy", b""),
        ("SCHILY.xattr.security.selinux", b"x"),
        ("SCHILY.xattr.system.posix_acl_access", b"x"),
    ];
    let report = scratch.unpack(&archive().pax(&records).file("f", "").end()).expect("unpacked");
    assert_eq!(report.attributes, 4);
    let file = fs::File::open(scratch.path("f")).expect("opened");
    assert!(sys::entry::has_attribute(&file, b"user.a", b"1\n2"));
    assert!(sys::entry::has_attribute(&file, b"security.capability", capability));
}

#[test]
fn long_names_and_large_numbers_of_both_formats_are_read() {
    let scratch = Scratch::new("long");
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    let gnu = format!("{}\0", long.replace('d', "g"));
    let made =
        archive().pax(&[("path", long.as_bytes()), ("uid", b"65535"), ("mtime", b"1700000000.5")]).file("short", "1");
    let made = made.add(Header::new(b'L', "././@LongLink", gnu.len()), gnu.as_bytes());
    let mut large = Header::new(b'0', "short", 1);
    large.put(124, b"\x80\0\0\0\0\0\0\0\0\0\0\x01").put(136, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    scratch.unpack(&made.add(large, b"2").end()).expect("unpacked");
    let first = fs::metadata(scratch.path(&long)).expect("there");
    assert_eq!((first.uid(), first.mtime()), (65_535, 1_700_000_000));
    assert_eq!(fs::metadata(scratch.path(gnu.trim_end_matches('\0'))).expect("there").mtime(), 0);
}

#[test]
fn damaged_archives_are_refused() {
    let scratch = Scratch::new("damaged");
    let whole = archive().file("a", "content").end();
    assert!(scratch.refusal(&whole[..600]).contains("cut off") || scratch.refusal(&whole[..515]).contains("cut off"));
    assert!(scratch.refusal(&whole[..100]).contains("cut off"));
    let mut wrong = whole.clone();
    wrong[0] = b'b';
    assert!(scratch.refusal(&wrong).contains("checksum"));
    let mut negative = Header::new(b'0', "n", 0);
    negative.put(124, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    assert!(scratch.refusal(&archive().add(negative, b"").end()).contains("size"));
    let mut signed = Header::new(b'0', "n", 0);
    signed.put(124, b"-0000000001\0");
    assert!(scratch.refusal(&archive().add(signed, b"").end()).contains("size"));
    let mut huge = Header::new(b'0', "n", 0);
    huge.put(124, b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    assert!(scratch.refusal(&archive().add(huge, b"").end()).contains("cut off"));
    let mut beyond = Header::new(b'x', "n", 0);
    beyond.put(124, b"77777777777\0");
    assert!(scratch.refusal(&archive().add(beyond, b"").end()).contains("too long"));
    let half = vec![b'h'; 600_000];
    let both = archive().pax(&[("comment", &half)]).pax(&[("comment", &half)]).file("f", "").end();
    assert!(scratch.refusal(&both).contains("together"));
    let apart = archive().pax(&[("comment", &half)]).file("e", "").pax(&[("comment", &half)]).file("f", "").end();
    scratch.unpack(&apart).expect("unpacked");
    let many = (0..100).fold(archive(), |archive, _| archive.pax(&[("mtime", b"1")]));
    assert!(scratch.refusal(&many.file("f", "").end()).contains("more than 64 headers"));
    for records in ["5 a=b\n", "99 path=x\n", "0 \n", "x path=y\n", "18446744073709551616 a=b\n"] {
        let header = Header::new(b'x', "pax", records.len());
        assert!(scratch.refusal(&archive().add(header, records.as_bytes()).end()).contains("damaged"), "{records}");
    }
}

#[test]
fn sparse_files_unknown_types_and_foreign_ids_are_refused() {
    let scratch = Scratch::new("kinds");
    assert!(scratch.refusal(&archive().add(Header::new(b'S', "s", 0), b"").end()).contains("sparse"));
    let sparse = archive().pax(&[("GNU.sparse.major", b"1")]).file("s", "").end();
    assert!(scratch.refusal(&sparse).contains("sparse"));
    assert!(scratch.refusal(&archive().add(Header::new(b'M', "m", 0), b"").end()).contains("unknown type"));
    let foreign = archive().pax(&[("uid", b"65536")]).file("f", "").end();
    assert!(scratch.refusal(&foreign).contains("f belongs to 65536:0"));
    assert!(scratch.refusal(&archive().pax(&[("gid", b"-1")]).file("f", "").end()).contains("damaged"));
    assert!(scratch.refusal(&archive().pax(&[("path", b"a\0b")]).file("f", "").end()).contains("NUL"));
}

#[test]
fn etc_is_a_folder_or_leads_to_one() {
    let scratch = Scratch::new("etc");
    assert!(scratch.refusal(&archive().file("etc", "").end()).contains("etc is no folder"));
    assert!(scratch.refusal(&archive().file("f", "").link(b'2', "etc", "/f").end()).contains("etc is no folder"));
    assert!(scratch.refusal(&archive().link(b'2', "etc", "etc").end()).contains("etc is no folder"));
    scratch.unpack(&archive().folder("usr/etc").link(b'2', "etc", "usr/etc").end()).expect("unpacked");
    scratch.unpack(&archive().file("etc", "").folder("etc").end()).expect("unpacked");
}

#[test]
fn bounds_of_depth_names_and_files_hold() {
    let scratch = Scratch::new("bounds");
    let deep = vec!["d"; 30].join("/");
    assert!(scratch.refusal(&archive().file(&deep, "").end()).contains("too deep"));
    // Each link leads one folder deeper.
    let mut links = archive().folder("a");
    for _ in 0..30 {
        links = links.folder("l/a").link(b'2', "l", "l/a");
    }
    scratch.unpack(&links.end()).expect_err("refused");
    let name = "n".repeat(256);
    assert!(scratch.refusal(&archive().pax(&[("path", name.as_bytes())]).file("f", "").end()).contains("too long"));
    let path = vec!["n"; 3000].join("/");
    assert!(scratch.refusal(&archive().pax(&[("path", path.as_bytes())]).file("f", "").end()).contains("too long"));
    let three = archive().file("1", "").file("2", "").file("3", "").end();
    let refusal = scratch.unpack_over(&three, &[], Limits { files: 2, ..LIMITS }).expect_err("refused");
    assert!(refusal.contains("2 files"), "{refusal}");
    let folders = (0..300).fold(archive(), |archive, at| archive.folder(&format!("some/folder/{at}")));
    assert!(scratch.refusal(&folders.end()).contains("more than 10000 bytes of their paths"));
}

#[test]
fn a_compressed_stream_is_hashed_and_bounded() {
    let scratch = Scratch::new("stream");
    let (blob, packed) = (scratch.0.join("blob"), scratch.0.join("blob.gz"));
    fs::write(&blob, vec![0; 1 << 20]).expect("written");
    let gzip = std::process::Command::new("gzip").args(["-k", "-9"]).arg(&blob).status().expect("gzip");
    assert!(gzip.success());
    let digest = "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58";
    for path in [&blob, &packed] {
        let finished = Stream::open(path, true, 1 << 20).and_then(Stream::finish).map_err(|error| error.to_string());
        assert_eq!(finished, Ok((1 << 20, digest.to_string())));
        let bomb = Stream::open(path, true, (1 << 20) - 1).and_then(Stream::finish);
        assert!(bomb.expect_err("refused").to_string().contains("more than"));
    }
    let whole = fs::read(&packed).expect("there");
    fs::write(&packed, &whole[..whole.len() / 2]).expect("written");
    let cut = Stream::open(&packed, true, 1 << 20).and_then(Stream::finish);
    assert!(cut.expect_err("refused").to_string().contains("cannot decompress"));
}

/// A generator of numbers that is the same in each run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

#[test]
fn archives_with_random_damage_are_unpacked_or_refused_and_reach_nothing_outside() {
    let scratch = Scratch::new("fuzz");
    let records: [(&str, &[u8]); 3] = [("path", b"a/b/c"), ("uid", b"7"), ("SCHILY.xattr.user.x", b"y")];
    let whole = archive().folder("a").pax(&records).file("x", "1").link(b'2', "l", "../../..").file("l/y", "2");
    let whole = whole.link(b'1', "h", "a/b/c").file("a/.wh.z", "").file("a/.wh..wh..opq", "").folder("l").end();
    let mut numbers = Numbers(1);
    for round in 0..500 {
        let mut damaged = whole.clone();
        for _ in 0..1 + numbers.below(4) {
            let at = numbers.below(damaged.len());
            damaged[at] = match numbers.below(4) {
                0 => numbers.below(256) as u8,
                1 => b'/',
                2 => b'.',
                _ => b'0' + numbers.below(10) as u8,
            };
        }
        // The damage must get past the checksum.
        for block in damaged.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
            let mut header = Header([0; 512]);
            header.0.copy_from_slice(block);
            block.copy_from_slice(&header.sealed());
        }
        if round % 10 == 0 {
            damaged.truncate(numbers.below(damaged.len()));
        }
        let _ = scratch.unpack(&damaged);
        let left: Vec<_> =
            fs::read_dir(&scratch.0).expect("there").map(|entry| entry.expect("one").file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?} in round {round}");
        fs::remove_dir_all(scratch.path("")).expect("removed");
        fs::create_dir(scratch.path("")).expect("made");
    }
}

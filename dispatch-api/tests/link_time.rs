//! Registration at link time, in programs of their own: what a linker keeps or drops
//! shows only in a finished binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

const UNKNOWN: &str = "unknown kind `tiny`, known: none; a kind is known when its plugin crate is \
                       linked, as by `use sink_sqs as _;`";

/// One way of building.
struct Build {
    profile: &'static str,
    lto: &'static str,
    codegen_units: &'static str,
    linker: &'static [&'static str],
}

const DEBUG: Build = Build {
    profile: "dev",
    lto: "off",
    codegen_units: "16",
    linker: &[],
};
const RELEASE_LTO: Build = Build {
    profile: "release",
    lto: "fat",
    codegen_units: "1",
    linker: &[],
};
const RELEASE_MANY_UNITS: Build = Build {
    profile: "release",
    lto: "off",
    codegen_units: "16",
    linker: &[],
};

/// The hosts in a folder of their own, laid once for all tests.
static HOSTS: LazyLock<PathBuf> = LazyLock::new(copy_of_the_hosts);

#[test]
fn a_linked_plugin_is_registered_and_one_that_nobody_mentions_is_not() {
    let workspace = &*HOSTS;
    for build in [DEBUG, RELEASE_LTO, RELEASE_MANY_UNITS] {
        assert_eq!(run(workspace, "linked", &build), "tiny");
        assert_eq!(run(workspace, "unlinked", &build), UNKNOWN);
    }
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn both_linkers_of_this_platform_keep_the_registration() {
    let workspace = &*HOSTS;
    let system_linker = Build {
        linker: &["-C", "linker-features=-lld"],
        ..DEBUG
    };
    assert_eq!(run(workspace, "linked", &system_linker), "tiny");
    let gc_sections = Build {
        linker: &[
            "-C",
            "linker-features=-lld",
            "-C",
            "link-arg=-Wl,--gc-sections",
        ],
        ..RELEASE_LTO
    };
    assert_eq!(run(workspace, "linked", &gc_sections), "tiny");
}

fn run(workspace: &Path, package: &str, build: &Build) -> String {
    let built = Command::new(env!("CARGO"))
        .args(["rustc", "--quiet", "--offline", "--package", package])
        .args(["--profile", build.profile, "--bin", package, "--"])
        .args(build.linker)
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", workspace.join("target"))
        .env("CARGO_PROFILE_RELEASE_LTO", build.lto)
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", build.codegen_units)
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs");
    assert!(
        built.status.success(),
        "{package}: {}",
        String::from_utf8_lossy(&built.stderr)
    );
    let folder = if build.profile == "dev" {
        "debug"
    } else {
        build.profile
    };
    let program = workspace.join("target").join(folder).join(package);
    let ran = Command::new(program).output().expect("the program runs");
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

/// Copies the hosts, with the versions that this workspace locks.
fn copy_of_the_hosts() -> PathBuf {
    let api = Path::new(env!("CARGO_MANIFEST_DIR"));
    let from = api.join("tests/link_time");
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("link_time");
    for file in [
        "plugin/Cargo.toml",
        "plugin/src/lib.rs",
        "linked/Cargo.toml",
        "linked/src/main.rs",
        "unlinked/Cargo.toml",
        "unlinked/src/main.rs",
    ] {
        write_if_changed(
            &to.join(file),
            &fs::read_to_string(from.join(file)).unwrap(),
        );
    }
    let manifest = fs::read_to_string(from.join("Cargo.toml")).unwrap();
    let api_path = api.to_str().expect("the path of this crate is UTF-8");
    write_if_changed(
        &to.join("Cargo.toml"),
        &manifest.replace("DISPATCH_API", api_path),
    );
    let lock = fs::read_to_string(api.join("../Cargo.lock")).unwrap();
    fs::write(to.join("Cargo.lock"), lock).unwrap();
    to
}

/// Keeps the time stamp of an unchanged file, so that nothing is built twice.
fn write_if_changed(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|known| known == text) {
        return;
    }
    fs::create_dir_all(path.parent().expect("a file stands in a folder")).unwrap();
    fs::write(path, text).unwrap();
}

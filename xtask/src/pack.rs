//! `cargo xtask pack`: an archive with everything that measures a larger machine.
//!
//! Such a machine may be at hand for a quarter of an hour, without compiler, network or root. In the archive are the programs,
//! C tor, the libraries that both need and glibc is not, and a script that starts `weft-pack`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{linted, machine};

/// Pack what measures a larger machine: `target/pack/weft-pack-COMMIT.tar.gz`.
#[derive(clap::Args, Debug)]
pub(crate) struct PackArgs {
    /// Compile as tests do: soon done, slow to run
    #[arg(long)]
    dev: bool,
    /// Run it in a bare root folder, too: kill it, go on, with one core, with few files, on a full disk
    #[arg(long = "try")]
    tried: bool,
}

/// Our programs in it.
const PROGRAMS: [&str; 2] = ["weft", "weft-pack"];
/// Bytes of the archive at most.
const MOST: u64 = 25_000_000;
/// glibc of Debian 12, on which the pack is to run.
const GLIBC: u32 = 36;
/// Libraries of glibc, whose version differs between machines.
const OF_GLIBC: [&str; 10] = [
    "ld-linux-x86-64",
    "libanl",
    "libc",
    "libdl",
    "libm",
    "libpthread",
    "libresolv",
    "librt",
    "libutil",
    "linux-vdso",
];
/// The script `run`: all else is in the program that it starts.
const RUN: &str = r#"#!/bin/sh
# Measures how Weft and C tor use the cores of this machine; ./run --help lists the options.
case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
here=$(cd "$here" && pwd) || exit 1
PATH=$here/bin:$PATH
LD_LIBRARY_PATH=$here/lib
export PATH LD_LIBRARY_PATH
exec "$here/bin/weft-pack" --folder "$here" "$@"
"#;

/// `cargo xtask pack`.
pub(crate) fn run(args: &PackArgs) -> Result<()> {
    machine::prepare_pack()?;
    let pack = Pack::build(args.dev, "pack")?;
    let archive = pack.archive(if args.dev { u64::MAX } else { MOST })?;
    println!("{}", archive.display());
    if args.tried
        && let Some(why) = pack.try_out()?
    {
        bail!("not tried: {why}");
    }
    Ok(())
}

/// Packs the programs that tests use, and tries the pack. The result: why it was not tried.
pub(crate) fn check() -> Result<Option<&'static str>> {
    machine::prepare_pack()?;
    // A pack that was made to be carried stays.
    Pack::build(true, "pack-try")?.try_out()
}

/// A pack before it is an archive.
struct Pack {
    /// `target/pack`, or that of a test.
    parent: PathBuf,
    /// Name of its folder.
    name: String,
}

impl Pack {
    /// Makes the folder of a pack, in place of another one, in this folder of `target`.
    fn build(dev: bool, parent: &str) -> Result<Pack> {
        let mut cargo = linted::cargo_as(dev)?;
        cargo.args(["build", "--locked"]);
        match dev {
            true => cargo.arg("--workspace"),
            // As `cargo xtask bench` builds them: the released code, here without the names of functions.
            false => {
                cargo
                    .args(["--profile", "profiling"])
                    .args(["-p", "weft", "-p", "weft-measure"])
            }
        };
        for program in PROGRAMS {
            cargo.args(["--bin", program]);
        }
        machine::succeed(&mut cargo)?;
        let built = machine::target().join(if dev { "debug" } else { "profiling" });
        let commit = machine::git(&["rev-parse", "HEAD"])?;
        let parent = machine::target().join(parent);
        machine::remove(&parent)?;
        let pack = Pack {
            name: format!("weft-pack-{}", commit.get(..10).unwrap_or(&commit)),
            parent,
        };
        let (bin, lib) = (pack.folder().join("bin"), pack.folder().join("lib"));
        for folder in [&bin, &lib] {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let mut programs: Vec<PathBuf> = PROGRAMS.map(|name| built.join(name)).into();
        for name in ["tor", "tor-gencert"] {
            programs.push(machine::find(name).with_context(|| format!("there is no {name}"))?);
        }
        for program in &programs {
            let name = program.file_name().context("a program without a name")?;
            machine::succeed(
                Command::new("strip")
                    .arg("--strip-all")
                    .arg("-o")
                    .args([&bin.join(name), program]),
            )?;
            for library in libraries(&machine::output(Command::new("ldd").arg(program))?)? {
                let name = library.file_name().context("a library without a name")?;
                fs::copy(&library, lib.join(name))
                    .with_context(|| format!("copying {}", library.display()))?;
            }
        }
        let needs = pack.glibc()?;
        if needs > GLIBC {
            println!(
                "It needs glibc 2.{needs}, as this machine has: it runs on Debian 12 (2.{GLIBC}) only if it is packed there."
            );
        }
        let about = json!({
            "commit": commit,
            "dirty": !machine::git(&["status", "--porcelain", "--", ".", ":!bench/results"])?.is_empty(),
            "rustc": machine::output(Command::new("rustc").arg("--version"))?.trim(),
            "glibc": format!("2.{needs}"),
        });
        fs::write(pack.folder().join("pack.json"), format!("{about:#}\n"))
            .context("writing pack.json")?;
        let run = pack.folder().join("run");
        fs::write(&run, RUN).context("writing run")?;
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755))?;
        Ok(pack)
    }

    fn folder(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// The second number of the glibc version that programs and libraries need.
    fn glibc(&self) -> Result<u32> {
        let mut needs = 0;
        for folder in ["bin", "lib"] {
            for entry in fs::read_dir(self.folder().join(folder))? {
                let text = machine::output(Command::new("objdump").arg("-T").arg(entry?.path()))?;
                needs = needs.max(glibc_of(&text));
            }
        }
        Ok(needs)
    }

    /// Packs the files into a reproducible archive: the same files make the same bytes.
    fn archive(&self, most: u64) -> Result<PathBuf> {
        let archive = self.parent.join(format!("{}.tar.gz", self.name));
        machine::succeed(
            Command::new("tar")
                .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
                .arg(format!(
                    "--mtime=@{}",
                    machine::git(&["log", "-1", "--format=%ct"])?
                ))
                .args(["--use-compress-program", "gzip -9n", "-cf"])
                .arg(&archive)
                .arg("-C")
                .args([&self.parent, &PathBuf::from(&self.name)]),
        )?;
        let size = fs::metadata(&archive)?.len();
        println!("{size} bytes");
        ensure!(
            size <= most,
            "the archive has {size} bytes, more than {most}"
        );
        Ok(archive)
    }

    /// Runs it in a root folder that has a shell and glibc only, without a network, home or /tmp. The result: why not.
    fn try_out(&self) -> Result<Option<&'static str>> {
        let trial = Trial::new(self)?;
        let plan = trial.run("", "--plan");
        // As unshare says it, and as mount does.
        let refusals = ["Operation not permitted", "permission denied"];
        if let Err(why) = &plan
            && refusals.iter().any(|no| format!("{why:#}").contains(no))
        {
            return Ok(Some("no namespaces can be made here"));
        }
        plan?;
        trial.kill_and_go_on()?;
        trial.refusals()?;
        Ok(None)
    }
}

/// A bare root folder with an unpacked pack in it.
struct Trial {
    root: PathBuf,
    /// The pack, from there.
    pack: String,
}

impl Trial {
    fn new(pack: &Pack) -> Result<Trial> {
        let root = pack.parent.join("root");
        for folder in ["bin", "dev", "proc", "full"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::write(root.join("dev/null"), "")?;
        let mut files = vec![PathBuf::from("/bin/sh")];
        // The guardian removes a killed node's folder by `rm`.
        files.extend(machine::find("rm"));
        for file in files.clone() {
            files.extend(paths(&machine::output(Command::new("ldd").arg(&file))?));
        }
        for program in PROGRAMS.into_iter().chain(["tor"]) {
            let program = pack.folder().join("bin").join(program);
            let all = paths(&machine::output(Command::new("ldd").arg(&program))?);
            files.extend(all.into_iter().filter(|file| is_of_glibc(file)));
        }
        for file in files {
            let inside = root.join(file.strip_prefix("/").unwrap_or(&file));
            if let Some(folder) = inside.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::copy(&file, &inside).with_context(|| format!("copying {}", file.display()))?;
        }
        machine::succeed(Command::new("cp").arg("-r").args([&pack.folder(), &root]))?;
        Ok(Trial {
            root,
            pack: pack.name.clone(),
        })
    }

    fn record(&self) -> PathBuf {
        self.root.join(&self.pack).join("record.json")
    }

    /// The pack in separate namespaces, with `before` before it in a shell's line.
    fn command(&self, before: &str, words: &str) -> Command {
        let script = format!(
            "set -e; ip link set lo up; mount -t proc proc \"$1/proc\"; mount --bind /dev/null \"$1/dev/null\"; \
             mount -t tmpfs -o size=4k tmpfs \"$1/full\"; echo > \"$1/full/file\"; {before} chroot \"$1\" /bin/sh -c '/{}/run {words}'",
            self.pack
        );
        let mut command = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child"])
            .args(["sh", "-c", &script, "sh"])
            .arg(&self.root)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end; returns its output.
    fn run(&self, before: &str, words: &str) -> Result<String> {
        let output = self
            .command(before, words)
            .output()
            .context("running unshare")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        println!("{text}");
        ensure!(
            output.status.success(),
            "run {words}: {}\n{text}",
            output.status
        );
        Ok(text)
    }

    /// It is killed after its first row, and a second run measures the others only.
    fn kill_and_go_on(&self) -> Result<()> {
        let mut child = self
            .command("", "--quick --minutes 10")
            .spawn()
            .context("running unshare")?;
        let first = self.first_row(&mut child);
        child.kill().context("killing the pack")?;
        child.wait().context("killing the pack")?;
        let first = first?;
        let text = self.run("", "--quick --minutes 10")?;
        ensure!(text.contains("rows are in it"), "it did not end its rows");
        let record = self.read()?;
        ensure!(record["finished"] == true, "the record is not finished");
        let runs = record["runs"].as_array().context("a record without runs")?;
        ensure!(
            runs.first() == Some(&first),
            "the first row was measured again"
        );
        let failed = runs.iter().find(|run| !run["failure"].is_null());
        ensure!(failed.is_none(), "a row failed: {failed:?}");
        let rows = runs
            .iter()
            .map(|run| (run["point"].to_string(), run["target"].to_string()));
        let mut rows: Vec<(String, String)> = rows.collect();
        let count = rows.len();
        rows.sort();
        rows.dedup();
        ensure!(
            count > 1 && rows.len() == count,
            "a row is missing, or there twice"
        );
        Ok(())
    }

    /// The first row, as soon as the record has it.
    fn first_row(&self, child: &mut Child) -> Result<Value> {
        loop {
            if let Ok(record) = self.read()
                && let Some(first) = record["runs"].get(0)
            {
                return Ok(first.clone());
            }
            let ended = child.try_wait().context("waiting for the pack")?;
            ensure!(ended.is_none(), "it ended before its first row: {ended:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn read(&self) -> Result<Value> {
        let path = self.record();
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Rows that it leaves out, and records that it refuses.
    fn refusals(&self) -> Result<()> {
        let one = format!("taskset -c {}", first_processor()?);
        for (before, words) in [
            (one.as_str(), "needs 2 cores, 1 may be used"),
            ("ulimit -n 1024;", "and a process may have 1024"),
        ] {
            let text = self.run(before, "--plan")?;
            ensure!(text.contains(words), "no {words:?} with {before:?}");
        }
        let other = fs::read_to_string(self.record())?.replace("\"commit\": \"", "\"commit\": \"f");
        fs::write(self.root.join(&self.pack).join("other.json"), other)?;
        for (words, why) in [
            (
                format!("--quick --record /{}/other.json", self.pack),
                "cannot be gone on with",
            ),
            (
                "--quick --record /full/record.json".to_owned(),
                "No space left",
            ),
        ] {
            let error = self.run("", &words).err();
            let error = error.with_context(|| format!("run {words} went well"))?;
            ensure!(format!("{error:#}").contains(why), "no {why:?}: {error:#}");
        }
        Ok(())
    }
}

/// The first processor that this process may use.
fn first_processor() -> Result<String> {
    let status = fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = line.context("no list of processors")?.trim();
    let first = list.split([',', '-']).next().unwrap_or_default();
    Ok(first.to_owned())
}

/// Paths of the libraries that `ldd` lists, the loader included.
fn paths(ldd: &str) -> Vec<PathBuf> {
    let paths = ldd.lines().filter_map(|line| {
        let (_, path) = line.split_once("=> ").unwrap_or(("", line.trim()));
        let path = path.split_whitespace().next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    paths.collect()
}

fn is_of_glibc(library: &Path) -> bool {
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    OF_GLIBC.iter().any(|one| {
        name.strip_prefix(one)
            .is_some_and(|rest| rest.starts_with(".so"))
    })
}

/// Libraries that are not of glibc.
fn libraries(ldd: &str) -> Result<Vec<PathBuf>> {
    if let Some(line) = ldd.lines().find(|line| line.contains("not found")) {
        bail!("a library is missing: {}", line.trim());
    }
    let mut paths = paths(ldd);
    paths.retain(|path| !is_of_glibc(path));
    Ok(paths)
}

/// The second number of the highest version of glibc in `objdump -T`.
fn glibc_of(symbols: &str) -> u32 {
    let versions = symbols.split("GLIBC_2.").skip(1).filter_map(|rest| {
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    versions.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LDD: &str = "\tlinux-vdso.so.1 (0x00007f1ee21b2000)\n\
        \tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f1ee2182000)\n\
        \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f1ee1d20000)\n\
        \tlibcap.so.2 => /lib/x86_64-linux-gnu/libcap.so.2 (0x00007f1ee1af7000)\n\
        \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1ee1362000)\n\
        \t/lib64/ld-linux-x86-64.so.2 (0x00007f1ee21b4000)\n";

    #[test]
    fn a_pack_has_the_libraries_that_glibc_is_not() {
        let names: Vec<PathBuf> = libraries(LDD).unwrap();
        let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["libz.so.1", "libcap.so.2"]);
        assert_eq!(paths(LDD).len(), 5);
        let error = libraries("\tlibx.so.1 => not found\n").unwrap_err();
        assert!(error.to_string().contains("libx.so.1"), "{error}");
    }

    #[test]
    fn the_highest_version_of_glibc_counts() {
        let symbols =
            "DF *UND* 0 (GLIBC_2.34) a\nDF *UND* 0 (GLIBC_2.2.5) b\n DF *UND* (GLIBC_2.9) c";
        assert_eq!(glibc_of(symbols), 34);
        assert_eq!(glibc_of("DF *UND* 0 d"), 0);
    }
}

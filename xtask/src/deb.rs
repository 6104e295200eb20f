//! `cargo xtask deb`: Weft and its laboratory as packages of Debian's.
//!
//! `packages/debian` says what is in it. Here that, and what goes into it, is put into one folder, in which Debian's own
//! tools make the package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{linted, machine};

/// Build the Debian packages: `target/deb/weft_VERSION_ARCHITECTURE.deb`, and that of weft-lab
#[derive(clap::Args, Debug)]
pub(crate) struct DebArgs {
    /// Compile as tests do: soon done, slow to run
    #[arg(long)]
    dev: bool,
}

/// Replacements in the unit of `examples/systemd` that make the package's unit.
const UNIT: [(&str, &str); 3] = [
    ("/usr/local/bin/", "/usr/bin/"),
    (
        "-f /etc/weft/torrc --DataDirectory /var/lib/weft --RunAsDaemon 0",
        "--defaults-torrc /usr/share/weft/weft-service-defaults-torrc -f /etc/weft/torrc --RunAsDaemon 0",
    ),
    (
        "# Ports below 1024, without root.",
        "AppArmorProfile=-system_weft\n\n# Ports below 1024, without root.",
    ),
];

/// Programs to pack, each in a package of its name.
const PROGRAMS: [&str; 2] = ["weft", "weft-lab"];

/// `cargo xtask deb`.
pub(crate) fn run(args: &DebArgs) -> Result<()> {
    machine::prepare_packaging()?;
    for package in build(args.dev)? {
        println!("{}", package.display());
    }
    Ok(())
}

/// Builds them from the programs that tests use, and looks into them.
pub(crate) fn check() -> Result<()> {
    machine::prepare_packaging()?;
    let packages = build(true)?;
    machine::succeed(
        Command::new("lintian")
            .args([
                "--fail-on",
                "error",
                "--allow-root",
                "--no-tag-display-limit",
            ])
            .args(&packages),
    )?;
    let root = folder().join("root");
    machine::remove(&root)?;
    for package in &packages {
        machine::succeed(Command::new("dpkg-deb").arg("-x").args([package, &root]))?;
    }
    for file in [
        "usr/bin/weft",
        "usr/bin/weft-lab",
        "etc/weft/torrc",
        "usr/share/man/man1/weft.1.gz",
        "usr/share/man/man1/weft-lab.1.gz",
        "usr/share/bash-completion/completions/weft",
        "usr/share/bash-completion/completions/weft-lab",
        "usr/lib/sysusers.d/weft.conf",
    ] {
        ensure!(root.join(file).is_file(), "no package has {file}");
    }
    let units = ["usr/lib/systemd/system", "lib/systemd/system"];
    let mut units = units
        .map(|folder| root.join(folder).join("weft.service"))
        .into_iter();
    let unit = units.find(|unit| unit.is_file());
    let text = fs::read_to_string(unit.context("the package has no unit")?)?;
    for (_, new) in UNIT {
        ensure!(text.contains(new), "the unit has no {new:?}: {text}");
    }
    machine::succeed(
        Command::new("apparmor_parser")
            .args(["--skip-kernel-load", "--skip-cache", "--quiet"])
            .arg(root.join("etc/apparmor.d/system_weft")),
    )?;
    // As the unit does before each start.
    let data = root.join("var/lib/weft");
    fs::create_dir_all(&data)?;
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700))?;
    machine::succeed(
        Command::new(root.join("usr/bin/weft"))
            .arg("--defaults-torrc")
            .arg(root.join("usr/share/weft/weft-service-defaults-torrc"))
            .arg("-f")
            .arg(root.join("etc/weft/torrc"))
            .arg("--DataDirectory")
            .arg(&data)
            .arg("--verify-config"),
    )
}

fn folder() -> PathBuf {
    machine::target().join("deb")
}

/// Builds the packages; the result is where each of [`PROGRAMS`] is.
fn build(dev: bool) -> Result<Vec<PathBuf>> {
    let mut cargo = linted::cargo_as(dev)?;
    match dev {
        // The programs that the tests run: nothing is compiled for this alone.
        true => cargo.args(["build", "--locked", "--workspace"]),
        false => cargo.args(["build", "--locked", "--release"]),
    };
    for name in PROGRAMS {
        if !dev {
            cargo.args(["--package", name]);
        }
        cargo.args(["--bin", name]);
    }
    machine::succeed(&mut cargo)?;
    let program = machine::target().join(if dev { "debug" } else { "release" });
    let source = folder().join("weft");
    machine::remove(&folder())?;
    fs::create_dir_all(&source)?;
    gather(&program, &source)?;
    machine::succeed(
        Command::new("dpkg-buildpackage")
            .current_dir(&source)
            .args(["--build=binary", "--no-sign", "--no-check-builddeps"])
            .env(
                "SOURCE_DATE_EPOCH",
                &machine::git(&["log", "-1", "--format=%ct"])?,
            ),
    )?;
    let built: Vec<PathBuf> = fs::read_dir(folder())?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let package = |program: &str| {
        let is_package = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&format!("{program}_")) && name.ends_with(".deb")
        };
        let found = built.iter().find(is_package).cloned();
        found.with_context(|| format!("no package {program} was built"))
    };
    PROGRAMS.into_iter().map(package).collect()
}

/// Puts everything that the packages have into the folder in which they are made; the programs are in `built`.
fn gather(built: &Path, source: &Path) -> Result<()> {
    let root = machine::root();
    let packages = root.join("packages");
    machine::succeed(
        Command::new("cp")
            .arg("-r")
            .args([&packages.join("debian"), &source.to_owned()]),
    )?;
    let copy = |from: PathBuf, to: &str| -> Result<()> {
        let to = source.join(to);
        fs::copy(&from, &to)
            .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
        Ok(())
    };
    for name in ["torrc", "weft-service-defaults-torrc", "system_weft"] {
        copy(packages.join(name), name)?;
    }
    copy(root.join("CHANGELOG.md"), "CHANGELOG.md")?;
    copy(root.join("docs/operator.md"), "operator.md")?;
    let systemd = root.join("examples/systemd");
    copy(systemd.join("weft.sysusers"), "debian/weft.sysusers")?;
    let unit = fs::read_to_string(systemd.join("weft.service"))?;
    fs::write(source.join("debian/weft.service"), unit_of_package(&unit)?)?;
    let version = env!("CARGO_PKG_VERSION");
    let date = machine::git(&["log", "-1", "--format=%cD"])?;
    fs::write(
        source.join("debian/changelog"),
        format!(
            "weft ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- Weft maintainers \
             <maintainers@weft.invalid>  {date}\n"
        ),
    )?;
    for name in PROGRAMS {
        let program = built.join(name);
        copy(program.clone(), name)?;
        machine::succeed(
            Command::new(&program)
                .args(["man", "--dir"])
                .arg(source.join("man").join(name)),
        )?;
        for (shell, file) in [
            ("bash", name.to_owned()),
            ("zsh", format!("_{name}")),
            ("fish", format!("{name}.fish")),
        ] {
            let folder = source.join("completions").join(shell);
            fs::create_dir_all(&folder)?;
            let script = machine::output(Command::new(&program).args(["completions", shell]))?;
            fs::write(folder.join(file), script)?;
        }
    }
    Ok(())
}

/// The unit of `examples/systemd`, where the package has its files.
fn unit_of_package(unit: &str) -> Result<String> {
    // Its first lines are about an installation by hand.
    let begin = unit.find("[Unit]").context("the unit has no [Unit]")?;
    let mut unit = unit[begin..].to_owned();
    for (old, new) in UNIT {
        ensure!(unit.contains(old), "the unit has no {old:?}");
        unit = unit.replace(old, new);
    }
    Ok(unit)
}

//! Names of functions with their modules.
//!
//! Of its own functions a release build notes names without modules, and the files that they are in. Of those that
//! come without debugging information the linker's names have all.

/// The name with the module that the file is, unless it has one.
pub(super) fn qualified(name: &str, file: Option<&str>) -> String {
    match file.and_then(module_of) {
        Some(module) if !name.contains("::") => format!("{module}::{name}"),
        _ => name.to_owned(),
    }
}

/// `crates/weft-core/src/manager/mod.rs` is `weft_core::manager`, `…/aes-0.8.4/src/ni.rs` is `aes::ni`,
/// `…/library/core/src/ptr.rs` is `core::ptr`. Of other languages it is the crate that has them.
fn module_of(file: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    let source = parts.iter().rposition(|part| *part == "src");
    let (package, modules) = match source {
        Some(at) if file.ends_with(".rs") => {
            (*parts.get(at.checked_sub(1)?)?, parts.split_off(at + 1))
        }
        _ => {
            // The folder after that of the registry's index.
            let at = parts.iter().position(|part| *part == "registry")?;
            (*parts.get(at + 3)?, Vec::new())
        }
    };
    let mut path = vec![without_version(package).replace('-', "_")];
    for module in modules {
        let module = module.strip_suffix(".rs").unwrap_or(module);
        if !matches!(module, "lib" | "main" | "mod") {
            path.push(module.replace('-', "_"));
        }
    }
    Some(path.join("::"))
}

/// `aes-0.8.4` is `aes`.
fn without_version(package: &str) -> &str {
    match package.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|digit: char| digit.is_ascii_digit()) => name,
        _ => package,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_modules() {
        let registry = "/home/me/.cargo/registry/src/index.crates.io-1949/";
        for (file, module) in [
            ("crates/weft-core/src/manager/mod.rs", "weft_core::manager"),
            ("/a/crates/weft-crypto/src/lib.rs", "weft_crypto"),
            (
                &format!("{registry}aes-0.8.4/src/ni/ctr.rs"),
                "aes::ni::ctr",
            ),
            (
                &format!("{registry}aws-lc-sys-0.40.0/aws-lc/crypto/fipsmodule/aes/aes.c"),
                "aws_lc_sys",
            ),
            (
                &format!("{registry}libmimalloc-sys-0.1.44/c_src/mimalloc/src/page.c"),
                "libmimalloc_sys",
            ),
            ("/rustc/abc/library/core/src/ptr/mod.rs", "core::ptr"),
        ] {
            assert_eq!(module_of(file).as_deref(), Some(module), "{file}");
        }
        assert_eq!(module_of("./socket/recv.c"), None);
        assert_eq!(module_of("src"), None);
        assert_eq!(module_of(""), None);
    }

    #[test]
    fn names_that_have_modules_keep_them() {
        let file = Some("crates/weft-core/src/circuit/half.rs");
        assert_eq!(
            qualified("forward", file),
            "weft_core::circuit::half::forward"
        );
        assert_eq!(qualified("a::b", file), "a::b");
        assert_eq!(qualified("writev", None), "writev");
    }
}

//! Rules about the modules of a package: no cycle of files is larger than three, and a type that
//! other packages see shows either all of its fields, to all, or none. (Not one whose layout is
//! told: another language or the kernel has the fields, too.)
//!
//! A file uses another one if a path in its code, tests apart, ends at an item of the other one. A
//! re-export is followed to where the item is, and the root of a package only hands on. A module
//! inside another one is a part of it, as the language's privacy has it: what one of the two takes
//! from the other does not count. What a macro's body or arguments name is seen where it begins
//! with `crate` or `super`.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::workspace::Package;

use super::{File, Findings};

/// Files that may know each other in a circle.
const CYCLE_MAX: usize = 3;

type Path = Vec<String>;

pub(crate) fn check(files: &[File], packages: &[Package], findings: &mut Findings) {
    for package in packages {
        let folder = format!("{}/src/", package.folder);
        let mut modules = Modules::default();
        for file in files.iter().filter(|file| file.has_extension(&["rs"])) {
            let Some(name) = file.path.strip_prefix(&folder) else { continue };
            match syn::parse_file(file.text()) {
                Ok(parsed) => modules.add(module_path(name), file, parsed),
                Err(error) => findings.in_file(&file.path, &format!("is not read ({error})")),
            }
        }
        modules.imports = modules.all_imports();
        modules.check(findings);
    }
}

/// The path of the module in `name`, which is relative to the package's sources.
fn module_path(name: &str) -> Path {
    let mut path: Path = name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_of_folder = path.last().is_some_and(|last| last == "mod");
    if is_of_folder || path == ["lib"] || path == ["main"] {
        path.pop();
    }
    path
}

/// The modules of one package, a file each.
#[derive(Default)]
struct Modules<'a> {
    files: BTreeMap<Path, (&'a File, Vec<syn::Item>)>,
    /// Names that modules have by `use`, and what they stand for.
    imports: BTreeMap<Path, Path>,
}

impl<'a> Modules<'a> {
    fn add(&mut self, path: Path, file: &'a File, parsed: syn::File) {
        let items: Vec<_> =
            parsed.items.into_iter().filter(|item| !is_for_tests(attributes(item))).collect();
        self.files.insert(path, (file, items));
    }

    fn all_imports(&self) -> BTreeMap<Path, Path> {
        let mut imports = BTreeMap::new();
        for (path, (_, items)) in &self.files {
            for item in items {
                let syn::Item::Use(item) = item else { continue };
                for named in named_by(&item.tree) {
                    if let Some(target) = self.absolute(path, &named.path) {
                        imports.insert(joined(path, &[named.name]), target);
                    }
                }
            }
        }
        imports
    }

    fn check(&self, findings: &mut Findings) {
        let mut used: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
        for (path, (file, items)) in &self.files {
            let mut reader = Reader {
                modules: self,
                file,
                module: path.clone(),
                at: path.clone(),
                used: BTreeSet::new(),
                findings,
            };
            for item in items {
                reader.visit_item(item);
            }
            if !path.is_empty() {
                used.insert(path, reader.used);
            }
        }
        for cycle in cycles(&used) {
            let (file, _) = &self.files[cycle[0]];
            let names: Vec<_> = cycle.iter().map(|path| path.join("::")).collect();
            let what = format!(
                "is in a cycle of {} files ({}), more than {CYCLE_MAX}; move what both sides use below them",
                names.len(),
                names.join(", ")
            );
            findings.in_file(&file.path, &what);
        }
    }

    /// `path`, as code in the module `at` writes it, from the package's root on; none if it leads
    /// out of the package.
    fn absolute(&self, at: &[String], path: &[String]) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some(joined(at, rest)),
            "super" => self.absolute(at.split_last()?.1, &joined(&["self".to_owned()], rest)),
            _ => {
                let here = joined(at, &path[..1]);
                let is_known = self.files.contains_key(&here) || self.imports.contains_key(&here);
                is_known.then(|| joined(at, path))
            }
        }
    }

    /// The file with the item at the end of `path`.
    fn home(&self, path: &[String]) -> Option<&Path> {
        let mut path = path.to_vec();
        // Re-exports of re-exports; a name that stands for itself would never end.
        for _ in 0..8 {
            let import = (1..=path.len()).rev().find_map(|length| {
                let target = self.imports.get(&path[..length])?;
                (target[..] != path[..length]).then(|| joined(target, &path[length..]))
            });
            let Some(target) = import else { break };
            path = target;
        }
        (1..=path.len())
            .rev()
            .find_map(|length| self.files.get_key_value(&path[..length]))
            .map(|(home, _)| home)
    }
}

/// Reads one file.
struct Reader<'a, 'b> {
    modules: &'a Modules<'a>,
    file: &'a File,
    module: Path,
    /// `module`, and the modules written out in it that the reader is in.
    at: Path,
    used: BTreeSet<&'a Path>,
    findings: &'b mut Findings,
}

impl Reader<'_, '_> {
    fn uses(&mut self, path: &[String]) {
        let Some(target) = self.modules.absolute(&self.at, path) else { return };
        let Some(home) = self.modules.home(&target) else { return };
        if !home.starts_with(&self.module) && !self.module.starts_with(home) {
            self.used.insert(home);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_, '_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.at.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for named in named_by(&item.tree) {
            // A module's name alone uses nothing of it: the paths that begin with it do.
            let target = self.modules.absolute(&self.at, &named.path);
            let is_module = target.is_some_and(|target| self.modules.files.contains_key(&target));
            if !is_module || named.name == "*" {
                self.uses(&named.path);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.uses(&path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Path>());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let text = called.tokens.to_string();
        let mut words = text.split_whitespace().peekable();
        while let Some(word) = words.next() {
            if word != "crate" && word != "super" {
                continue;
            }
            let mut path = vec![word.to_owned()];
            while words.next_if_eq(&"::").is_some() {
                path.extend(words.next().map(str::to_owned));
            }
            self.uses(&path);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let is_shared = matches!(item.vis, syn::Visibility::Public(_))
            && !item.attrs.iter().any(|attribute| attribute.path().is_ident("repr"));
        let of_record =
            item.fields.iter().filter(|field| matches!(field.vis, syn::Visibility::Public(_)));
        let private =
            item.fields.iter().filter(|field| matches!(field.vis, syn::Visibility::Inherited));
        let count = item.fields.len();
        if is_shared && of_record.count() != count && private.count() != count {
            let what = format!(
                "`{}` shows some of its fields, or to some; make all of them private, or all `pub`",
                item.ident
            );
            self.findings.in_file(&self.file.path, &what);
        }
        visit::visit_item_struct(self, item);
    }
}

/// A name that a `use` brings, `*` for all, and the path that it stands for.
struct Named {
    name: String,
    path: Path,
}

fn named_by(tree: &syn::UseTree) -> Vec<Named> {
    match tree {
        syn::UseTree::Path(inner) => {
            let first = inner.ident.to_string();
            let mut named = named_by(&inner.tree);
            for named in &mut named {
                if named.name == "self" {
                    named.name.clone_from(&first);
                    named.path.clear();
                }
                named.path.insert(0, first.clone());
            }
            named
        }
        syn::UseTree::Name(name) => {
            let name = name.ident.to_string();
            vec![Named { path: vec![name.clone()], name }]
        }
        syn::UseTree::Rename(renamed) => {
            vec![Named { name: renamed.rename.to_string(), path: vec![renamed.ident.to_string()] }]
        }
        syn::UseTree::Glob(_) => vec![Named { name: "*".to_owned(), path: Path::new() }],
        syn::UseTree::Group(group) => group.items.iter().flat_map(named_by).collect(),
    }
}

fn joined(start: &[String], rest: &[String]) -> Path {
    start.iter().chain(rest).cloned().collect()
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether `#[cfg(test)]`, or an `all` with it, stands above.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let text = list.tokens.to_string();
        list.path.is_ident("cfg") && (text == "test" || text.starts_with("all (test"))
    })
}

/// Sets of more than [`CYCLE_MAX`] modules each of which uses every other one, on a detour or not.
fn cycles<'a>(used: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> Vec<Vec<&'a Path>> {
    let reached_from = |start: &'a Path| {
        let mut reached = BTreeSet::new();
        let mut next = vec![start];
        while let Some(path) = next.pop() {
            for &path in used.get(path).into_iter().flatten() {
                if reached.insert(path) {
                    next.push(path);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<_, _> = used.keys().map(|&path| (path, reached_from(path))).collect();
    let mut found: Vec<Vec<&Path>> = Vec::new();
    for (&path, onward) in &reached {
        let is_mutual =
            |other: &&&Path| reached.get(**other).is_some_and(|back| back.contains(path));
        let cycle: Vec<_> = onward.iter().filter(is_mutual).copied().collect();
        if cycle.len() > CYCLE_MAX && cycle[0] == path {
            found.push(cycle);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(sources: &[(&str, &str)]) -> Vec<String> {
        let file = |(name, text): &(&str, &str)| File {
            path: format!("p/src/{name}"),
            bytes: text.as_bytes().to_vec(),
            executable: false,
        };
        let package = Package {
            name: "p".to_owned(),
            folder: "p".to_owned(),
            programs: Vec::new(),
            links: Vec::new(),
        };
        let files: Vec<_> = sources.iter().map(file).collect();
        let mut findings = Findings::default();
        check(&files, &[package], &mut findings);
        findings.into_lines()
    }

    /// The cycle leads through a re-export, the name of a module, and a macro.
    #[test]
    fn cycle_of_four_files_is_found() {
        let [root, a, b, c] = [
            ("lib.rs", "mod a; mod b; mod c; mod d; pub use c::Deep;"),
            ("a.rs", "use crate::b; fn f() { b::g() }"),
            ("b.rs", "use crate::Deep; pub fn g() -> Deep { Deep }"),
            ("c/inner.rs", "pub struct Deep; fn h() { super::i(); println!(\"{}\", crate::d::X) }"),
        ];
        let closed = ("d.rs", "use super::a::*; pub const X: u8 = 0;");
        let parent = ("c/mod.rs", "mod inner; pub use inner::Deep; fn i() { inner::h() }");
        let found = about(&[root, a, b, parent, c, closed]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("cycle of 4 files (a, b, c::inner, d)"), "{found:?}");
        let open = ("d.rs", "pub const X: u8 = 0; #[cfg(test)] mod tests { use crate::a::f; }");
        assert_eq!(about(&[root, a, b, parent, c, open]), [""; 0]);
        let short = ("c/inner.rs", "pub struct Deep; fn h() { crate::a::f(); super::i() }");
        assert_eq!(about(&[root, a, b, parent, short, open]), [""; 0]);
    }

    /// A shared type that shows some of its fields is found.
    #[test]
    fn partly_shown_shared_type_is_found() {
        for fields in ["pub a: u8, b: u8", "pub(crate) a: u8", "pub a: u8, pub(crate) b: u8"] {
            let source = format!("pub struct S {{ {fields} }}");
            let found = about(&[("lib.rs", &source)]);
            assert_eq!(found.len(), 1, "{source}: {found:?}");
            assert!(found[0].starts_with("p/src/lib.rs: `S` shows some"), "{found:?}");
            for shape in ["pub(crate)", "#[repr(C)] pub"] {
                let source = format!("{shape} struct S {{ {fields} }}");
                assert_eq!(about(&[("lib.rs", &source)]), [""; 0], "{source}");
            }
        }
        let sound = "pub struct A { pub a: u8, pub b: u8 } pub struct B(u8); pub struct C;";
        assert_eq!(about(&[("lib.rs", sound)]), [""; 0]);
    }
}

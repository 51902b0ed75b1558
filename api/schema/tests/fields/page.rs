//! Generates `docs/fields.md` from the table.

use std::fmt::Write as _;

use api_model::acted::{self, Acts, Field, Part, Row};

const HEAD: &str = "# Who acts on which field

Skiff serves every stable kind of Kubernetes and checks and stores every field. This page says who acts on them, and
since which version. What nobody acts on is stored, checked and given back, and changes nothing; whoever writes it gets a
warning (`skiff: spec.securityContext.seLinuxChangePolicy is stored but nothing acts on it yet`).

The page is made from the table in `api/model/src/acted.rs` by `SKIFF_WRITE_DOCS=1 cargo test -p api-schema --test fields`,
and tests hold the table against the schemas and the code.

`clients` are programs outside of Skiff, as upstream: ingress controllers, load balancers, whoever made the object. A field stands
for all that lies in it. `metadata` and `status` are left out.
";

/// The page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n## Kinds on which nothing acts\n\n");
    for row in acted::rows() {
        if let Acts::Nobody(sentence) = row.acts {
            line(&mut page, format_args!("- {}: {sentence}.", name(row)));
        }
    }
    page.push_str("\n## Fields on which nothing acts\n\n");
    for row in acted::rows() {
        let own = row.fields().filter(|(path, field)| field.acted_on_by.is_empty() && !is_of_pod(row, path));
        let paths: Vec<String> = own.map(|(path, _)| format!("`{path}`")).collect();
        if !paths.is_empty() {
            line(&mut page, format_args!("- {}: {}.", name(row), paths.join(", ")));
        }
    }
    page.push_str("\n## All kinds\n");
    for row in acted::rows().filter(|row| matches!(row.acts, Acts::Fields(_))) {
        line(&mut page, format_args!("\n### {}\n\n| field | acted on by | since |\n|---|---|---|", name(row)));
        for (path, field) in row.fields().filter(|(path, _)| !is_of_pod(row, path)) {
            let path = if path.is_empty() { "all".to_owned() } else { format!("`{path}`") };
            line(&mut page, format_args!("| {path} | {} | {} |", who(field), field.since));
        }
        if let Some(base) = row.pod_spec.filter(|base| *base != "spec") {
            line(&mut page, format_args!("| `{base}` | as a Pod's `spec` | |"));
        }
    }
    page
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(page, "{text}").expect("writing to a string");
}

/// The rows of a Pod's spec are listed only under Pod.
fn is_of_pod(row: &Row, path: &str) -> bool {
    row.pod_spec.is_some_and(|base| base != "spec" && path.starts_with(base))
}

fn name(row: &Row) -> String {
    if row.group.is_empty() { row.kind.to_owned() } else { format!("{} ({})", row.kind, row.group) }
}

fn who(field: &Field) -> String {
    let part = |part: &Part| match part {
        Part::ApiServer => "API server",
        Part::Scheduler => "scheduler",
        Part::Controller(name) => name,
        Part::NodeAgent => "node agent",
        Part::Proxy => "proxy",
        Part::Dns => "DNS",
        Part::Clients => "clients",
    };
    match field.acted_on_by {
        [] => "**nobody**".to_owned(),
        parts => parts.iter().map(part).collect::<Vec<_>>().join(", "),
    }
}

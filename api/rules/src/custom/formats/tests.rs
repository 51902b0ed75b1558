//! Texts that have a format, and texts that do not.

use super::*;

#[test]
fn formats_tell_good_from_bad() {
    for (format, good, bad) in [
        ("bsonobjectid", "507f1f77bcf86cd799439011", "507f1f77bcf86cd79943901"),
        ("bsonobjectid", "507F1F77BCF86CD799439011", "507f1f77bcf86cd79943901g"),
        ("byte", "aGk=", "a"),
        ("byte", "aGkx", ""),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("cidr", "010.0.0.0/08", "10.0.0.0/33"),
        ("cidr", "fd00::/64", "fd00::/129"),
        ("creditcard", "4111 1111-1111 1111", "4111 1111 1111 1112"),
        ("creditcard", "378282246310005", "4111"),
        ("date", "2024-02-29", "2024-2-29"),
        ("date", "0001-01-01", "2023-02-29"),
        ("hexcolor", "#FFFFFF", "#FFFF"),
        ("hexcolor", "abc", "#ggg"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv4", "010.000.0.1", "10.0.1"),
        ("ipv4", "::ffff:1.2.3.4", "fd00::1"),
        ("ipv6", "fd00::1", "10.0.0.1"),
        ("isbn", "0321751043", "0321751042"),
        ("isbn", "978-0321751041", "978-0321751042"),
        ("isbn10", "0-8044-2957-X", "978-0321751041"),
        ("isbn10", "080442957X", "X804429570"),
        ("isbn13", "978 0 321 75104 1", "0321751043"),
        ("k8s-long-name", "a.b", "a..b"),
        ("k8s-short-name", "web-1", "Web"),
        ("mac", "01:23:45:67:89:ab", "01:23"),
        ("mac", "01-23-45-67-89-AB-cd-ef", "01:23:45-67:89:ab"),
        ("mac", "0123.4567.89ab", "01.23.45.67.89.ab"),
        ("mac", "0123.4567.89ab.cdef", "0123:4567:89ab"),
        ("rgbcolor", "rgb(255, 0,12)", "rgb(256,0,12)"),
        ("ssn", "123-45-6789", "123456789"),
        ("uuid", "b0d3c8a7-0000-4000-8000-000000000001", "b0d3"),
        ("uuid", "B0D3C8A7000040008000000000000001", "{b0d3c8a7-0000-4000-8000-000000000001}"),
        ("uuid3", "b0d3c8a7-0000-3000-0000-000000000001", "b0d3c8a7-0000-4000-8000-000000000001"),
        ("uuid4", "b0d3c8a7-0000-4000-8000-000000000001", "b0d3c8a7-0000-4000-0000-000000000001"),
        ("uuid5", "b0d3c8a7-0000-5000-b000-000000000001", "b0d3c8a7-0000-4000-8000-000000000001"),
    ] {
        assert!(is_valid(format, good), "{format} {good}");
        assert!(!is_valid(format, bad), "{format} {bad}");
        assert!(is_known(format), "{format}");
    }
    assert!(is_valid("nobody-knows", "anything") && !is_known("nobody-knows"));
    assert!(is_known("date-time") && is_known("credit-card") && is_known("password"));
}

fn all(format: &str, good: &[&str], bad: &[&str]) {
    good.iter().for_each(|text| assert!(is_valid(format, text), "{format} {text:?}"));
    bad.iter().for_each(|text| assert!(!is_valid(format, text), "{format} {text:?}"));
}

#[test]
fn times_are_those_of_rfc_3339() {
    let good = ["2024-02-29T12:00:00Z", "2024-01-01T00:00:00.5+02:00", "2024-01-01t23:59:59z", "2024-01-01T00:00:00,5Z"];
    let bad = [
        "2024-02-30T12:00:00Z",
        "2024-01-01",
        "2024-01-01 00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00",
        "",
    ];
    all("date-time", &good, &bad);
    all("datetime", &good, &bad);
}

#[test]
fn durations_are_gos_or_scalas() {
    let good = [
        "1h30m",
        "-1.5h",
        "+.5s",
        "0",
        "1.h",
        "22 ns",
        "10 min",
        "5 mins",
        "30secs",
        "1 wk",
        "3 weeks",
        "100 millis",
        "2 hr",
        "2 HOURS",
        "1 day",
        "PT1H",
        "P1D",
        "5µs",
        "1 h and 2 m",
    ];
    all("duration", &good, &["soon", "", "1", "2 hrs", "3 years", "h", "1 99999999999999999999 h"]);
}

#[test]
fn addresses_of_mail_may_bear_a_name() {
    let good = [
        "a@b.c",
        "a@b",
        "Foo <a@b.c>",
        "\"Foo, Bar\" <a@b.c>",
        "John Q. Public <j.q@x.org>",
        "<a@b.c>",
        "a+b@c.d",
        "ä@ö.example",
        "\"a b\"@c.d",
        "a@[127.0.0.1]",
        "a@b.c (Foo)",
        " a@b.c ",
        "o'hara@b-c.d",
    ];
    let bad = [
        "a.b.c",
        "",
        "@b.c",
        "a@",
        "a@b..c",
        ".a@b.c",
        "a.@b.c",
        "a b@c.d",
        "Foo a@b.c",
        "Foo <a@b.c",
        "a@b.c, d@e.f",
        "a@[x]",
        "\"\"@b.c",
        "a@b@c",
    ];
    all("email", &good, &bad);
}

#[test]
fn host_names_end_in_letters() {
    let long = format!("{}.com", "a".repeat(63));
    let too_long = format!("{}.com", "a".repeat(64));
    let good = ["a.example.com", "localhost", "a-b.com", "1.example.com", "a-b", "bücher.example", "a", "☃.net", &long];
    all(
        "hostname",
        &good,
        &["a_b.com", "10.0.0.1", "a.com.", "", "my-host", "-a.com", "a-.com", "a..com", "a.c", "a.c-d", "a b.com", &too_long],
    );
}

#[test]
fn uris_are_absolute() {
    let good = [
        "https://example.com/x",
        "/a/b?c#d",
        "mailto:a@b.c",
        "urn:x:y",
        "http://[fd00::1]:80/",
        "http://[fe80::1%25en0]/",
        "http://user:p%40ss@host:80",
        "http://host:",
        "x:",
        "*",
        "http://a/%20",
        "//a b",
        "http:///x",
        "http://ä/",
        "http://h/?%zz",
        "http://a/b c",
    ];
    let bad = [
        "no uri",
        "",
        "a/b",
        "example.com",
        ":x",
        "1http://x",
        "http://[fd00::1",
        "http://h:8a",
        "http://a b/",
        "/%zz",
        "/%2",
        "http://u ser@h/",
        "http://%20/",
        "http://[x]/",
        "/a\tb",
    ];
    all("uri", &good, &bad);
}

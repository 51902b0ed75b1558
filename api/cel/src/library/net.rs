//! IP addresses and networks.

use std::net::IpAddr;

use ipnet::IpNet;

use super::CallResult;
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::value::Value;

/// Calls a function of addresses or networks.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    match args {
        [Value::String(text)] => of_text(function, text, meter),
        [Value::Ip(ip)] => of_address(function, *ip, meter),
        [Value::Cidr(cidr), rest @ ..] => of_network(function, *cidr, rest, meter),
        _ => Ok(None),
    }
}

fn of_text<'v>(function: &str, text: &str, meter: &mut Meter) -> CallResult<'v> {
    let value = match function {
        "isIP" => Value::Bool(address(text).is_ok()),
        "ip" => Value::Ip(address(text)?),
        "ip.isCanonical" => {
            meter.pay_text(text.len() as u64)?;
            Value::Bool(address(text)?.to_string() == text)
        }
        "isCIDR" => Value::Bool(network(text).is_ok()),
        "cidr" => Value::Cidr(network(text)?),
        _ => return Ok(None),
    };
    meter.pay_text(text.len() as u64)?;
    Ok(Some(value))
}

/// Parses an address; an IPv4 address mapped to IPv6 is not valid.
fn address(text: &str) -> Result<IpAddr, EvaluateError> {
    let parsed = text
        .parse()
        .map_err(|_| EvaluateError::failed(format!("IP Address {text:?} parse error during conversion from string: unable to parse IP")))?;
    match parsed {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(EvaluateError::failed(format!("IPv4-mapped IPv6 address {text:?} is not allowed")))
        }
        parsed => Ok(parsed),
    }
}

fn network(text: &str) -> Result<IpNet, EvaluateError> {
    let wrong = |why: &str| EvaluateError::failed(format!("network address parse error during conversion from string: {why}"));
    let parsed: IpNet = text.parse().map_err(|_| wrong(&format!("netip.ParsePrefix({text:?}): unable to parse")))?;
    match parsed {
        IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some() => Err(wrong(&format!("IPv4-mapped IPv6 address {text:?} is not allowed"))),
        parsed => Ok(parsed),
    }
}

fn of_address<'v>(function: &str, ip: IpAddr, meter: &mut Meter) -> CallResult<'v> {
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let value = match function {
        "family" => Value::Int(if ip.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(ip.is_unspecified()),
        "isLoopback" => Value::Bool(ip.is_loopback()),
        "isLinkLocalUnicast" => Value::Bool(is_link_local),
        "isLinkLocalMulticast" => Value::Bool(match ip {
            IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]),
            IpAddr::V6(v6) => v6.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
        }),
        "isGlobalUnicast" => {
            let is_broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
            Value::Bool(!is_broadcast && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !is_link_local)
        }
        _ => return Ok(None),
    };
    meter.pay(1)?;
    Ok(Some(value))
}

fn of_network<'v>(function: &str, cidr: IpNet, rest: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let cost = if cidr.addr().is_ipv4() { 1 } else { 4 };
    let value = match (function, rest) {
        ("ip", []) => Value::Ip(cidr.addr()),
        ("masked", []) => Value::Cidr(cidr.trunc()),
        ("prefixLength", []) => Value::Int(i64::from(cidr.prefix_len())),
        ("containsIP", [Value::Ip(ip)]) => Value::Bool(cidr.contains(ip)),
        ("containsCIDR", [Value::Cidr(other)]) => Value::Bool(contains(cidr, *other)),
        ("containsIP", [Value::String(text)]) => {
            meter.pay_text(text.len() as u64)?;
            Value::Bool(cidr.contains(&address(text)?))
        }
        ("containsCIDR", [Value::String(text)]) => {
            meter.pay_text(text.len() as u64)?;
            Value::Bool(contains(cidr, network(text)?))
        }
        _ => return Ok(None),
    };
    meter.pay(cost)?;
    Ok(Some(value))
}

fn contains(cidr: IpNet, other: IpNet) -> bool {
    cidr.prefix_len() <= other.prefix_len() && cidr.contains(&other.addr())
}

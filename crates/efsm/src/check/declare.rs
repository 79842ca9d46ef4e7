// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parameters, constants, metadata and registers.

use crate::diagnostic::{Code, did_you_mean, list_names};
use crate::model::{Span, Type, Variable};
use crate::syntax::ast::{self, Name, Program};
use crate::syntax::read_value;

use super::Checker;
use super::address::ADDRESS;
use super::constant::{Constant, type_by_name};
use super::names::{Symbol, VariableInfo, exceeds_index_limit};

#[derive(Debug, Clone, Copy)]
enum ParamType {
    Port,
    Number(Type),
    Ip,
    Ipv4,
    Ipv6,
    Mac,
    Time,
}

const PARAM_TYPES: &str =
    "`port`, `u8`, `u16`, `u32`, `u64`, `i8`, `i16`, `i32`, `i64`, `ip`, `ipv4`, `ipv6`, `mac` and `time`";
const NUMBERS: [&str; 8] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];
const TYPE_NAMES: [&str; 11] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "ip", "ipv4", "ipv6"];

impl<'s> Checker<'s, '_> {
    /// Reports values given to undeclared parameters, and duplicates.
    pub(super) fn check_given(&mut self, declared: &[ast::Param<'s>], given: &[(String, String)]) {
        for (i, (name, _)) in given.iter().enumerate() {
            if given[..i].iter().any(|(other, _)| other == name) {
                self.sink
                    .error_without_span(Code::BadParameter, format!("parameter `{name}` is given twice"))
                    .help("give each parameter one value");
                continue;
            }
            if declared.iter().any(|p| p.name.text == name) || self.names.has_syntax_errors {
                continue;
            }
            let names = || declared.iter().map(|p| p.name.text);
            let help = match did_you_mean(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if declared.is_empty() => "the function has no parameters".to_owned(),
                None => format!("the function has {}", list_names(names(), 20)),
            };
            self.sink.error_without_span(Code::UnknownParameter, format!("there is no parameter `{name}`")).help(help);
        }
    }

    /// Declares parameters and constants in source order, so that each can use those before it.
    pub(super) fn params_and_constants(&mut self, program: &Program<'s>, given: &[(String, String)]) {
        let mut constants = program.constants.iter().peekable();
        for param in &program.params {
            while let Some(constant) = constants.next_if(|c| c.name.span.start < param.name.span.start) {
                self.declare_constant(constant);
            }
            let value = given.iter().find(|(name, _)| name == param.name.text).map(|(_, value)| value.as_str());
            let symbol = self.param(param, value).unwrap_or(Symbol::Broken);
            self.names.declare(param.name, "parameter", symbol, self.sink);
        }
        for constant in constants {
            self.declare_constant(constant);
        }
    }

    fn declare_constant(&mut self, constant: &ast::Constant<'s>) {
        let value = self.constant(&constant.value, "a `const`");
        let symbol = value.map_or(Symbol::Broken, Symbol::Constant);
        self.names.declare(constant.name, "constant", symbol, self.sink);
    }

    fn param(&mut self, param: &ast::Param<'s>, given: Option<&str>) -> Option<Symbol> {
        let ty = self.param_type(param.ty);
        let default = param.default.as_ref().map(|tree| (tree.span, self.constant(tree, "the default of a parameter")));
        let ty = ty?;
        let name = param.name.text;
        // The default is checked even if a value is given.
        let default = match default {
            Some((span, constant)) => Some(self.param_value(ty, name, constant?, span, "")?),
            None => None,
        };
        if let Some(text) = given {
            let constant = match read_value(text) {
                Ok((negative, literal)) => match Constant::from(literal) {
                    Constant::Number(n) if negative => Constant::Number(-n),
                    constant => constant,
                },
                Err(bad) => {
                    self.sink
                        .error(
                            Code::BadParameter,
                            param.name.span,
                            format!("the value given to `{name}`: {}", bad.message),
                            "declared here",
                        )
                        .help(bad.help);
                    return None;
                }
            };
            return self.param_value(ty, name, constant, param.name.span, "the value given: ").map(Symbol::Constant);
        }
        match (default, ty) {
            (Some(constant), _) => Some(Symbol::Constant(constant)),
            (None, ParamType::Port) => Some(Symbol::UnsetPort),
            (None, _) => {
                self.sink
                    .error(
                        Code::UnsetParameter,
                        param.name.span,
                        format!("parameter `{name}` has no value"),
                        "has no default",
                    )
                    .help(format!(
                        "give it one when the function is used, as in `--param {name}=VALUE`, or write a default: `= VALUE`"
                    ));
                None
            }
        }
    }

    fn param_type(&mut self, name: Name<'s>) -> Option<ParamType> {
        Some(match name.text {
            "port" => ParamType::Port,
            "ip" => ParamType::Ip,
            "ipv4" => ParamType::Ipv4,
            "ipv6" => ParamType::Ipv6,
            "mac" => ParamType::Mac,
            "time" => ParamType::Time,
            text => match type_by_name(text) {
                Some(ty) => ParamType::Number(ty),
                None => {
                    let names = NUMBERS.into_iter().chain(["port", "ip", "ipv4", "ipv6", "mac", "time"]);
                    let help = match did_you_mean(text, names) {
                        Some(near) => format!("did you mean `{near}`? There are {PARAM_TYPES}"),
                        None => format!("there are {PARAM_TYPES}"),
                    };
                    self.sink
                        .error(
                            Code::UnknownType,
                            name.span,
                            format!("`{text}` is not a parameter type"),
                            "unknown type",
                        )
                        .help(help);
                    return None;
                }
            },
        })
    }

    fn param_value(
        &mut self,
        ty: ParamType,
        name: &str,
        value: Constant,
        span: Span,
        prefix: &str,
    ) -> Option<Constant> {
        let (expected, example) = match (ty, value) {
            (ParamType::Ip, Constant::Ipv4(_) | Constant::Ipv6(_))
            | (ParamType::Ipv4, Constant::Ipv4(_))
            | (ParamType::Ipv6, Constant::Ipv6(_))
            | (ParamType::Mac, Constant::Mac(_))
            | (ParamType::Time, Constant::Time(_)) => return Some(value),
            (ParamType::Number(ty), Constant::Number(_)) => {
                return self.check_fits(value, 1, ty, name, span).map(|_| value);
            }
            (ParamType::Port, Constant::Number(_)) => {
                return self.check_port(value, span).map(|_| value);
            }
            (ParamType::Ip, _) => ("an IPv4 or IPv6 address", "192.0.2.1"),
            (ParamType::Port, _) => ("the number of a port", "1"),
            (ParamType::Number(_), _) => ("a number", "100"),
            (ParamType::Ipv4, _) => ("an IPv4 address", "192.0.2.1"),
            (ParamType::Ipv6, _) => ("an IPv6 address", "2001:db8::1"),
            (ParamType::Mac, _) => ("a MAC address", "02:00:00:00:00:01"),
            (ParamType::Time, _) => ("a time with its unit", "10s"),
        };
        self.sink
            .error(
                Code::WrongKind,
                span,
                format!("{prefix}`{name}` expects {expected}, found {} ({})", value.kind(), value.render()),
                format!("expected {expected}"),
            )
            .help(format!("as in `{example}`"));
        None
    }

    pub(super) fn metadata(&mut self, metadata: &[ast::Variable<'s>]) -> Vec<Variable> {
        let mut variables = Vec::new();
        for tree in metadata {
            let (variable, info) = self.variable(tree);
            if let Some(initial) = tree.initial.as_ref().filter(|_| variable.initial != 0) {
                self.sink
                    .error(Code::NotWritable, initial.span, "metadata has no initial value", "not 0")
                    .help("metadata is 0 when a packet arrives; write it in the first element");
            }
            if exceeds_index_limit(variables.len(), "metadata fields", tree.name.span, self.sink) {
                break;
            }
            let symbol = Symbol::Metadata(variables.len() as u16);
            if self.names.declare(tree.name, "metadata field", symbol, self.sink) {
                variables.push(variable);
                self.names.metadata.push(info);
            }
        }
        variables
    }

    /// Checks type, clock unit and initial value of a register, global register or metadata field.
    pub(super) fn variable(&mut self, tree: &ast::Variable<'s>) -> (Variable, VariableInfo<'s>) {
        let mut ty = Type { width_bits: 64, signed: false };
        if let Some(name) = tree.ty {
            let known = match name.text {
                "ip" | "ipv6" => Some(ADDRESS),
                "ipv4" => Some(Type { width_bits: 32, signed: false }),
                text => type_by_name(text),
            };
            match known {
                Some(known) => ty = known,
                None => {
                    let help = match (name.text, did_you_mean(name.text, TYPE_NAMES)) {
                        ("mac", _) => "a MAC address fits in `u64`".to_owned(),
                        ("time", _) => "times are numbers with a clock unit, as in `u32 time(1us)`".to_owned(),
                        ("port", _) => "port numbers fit in `u32`".to_owned(),
                        (_, Some(near)) => format!("did you mean `{near}`? There are {}", list_names(TYPE_NAMES, 12)),
                        (_, None) => format!("there are {}", list_names(TYPE_NAMES, 12)),
                    };
                    self.sink
                        .error(
                            Code::UnknownType,
                            name.span,
                            format!("`{}` is not a variable type", name.text),
                            "unknown type",
                        )
                        .help(help);
                }
            }
        }
        let unit_ns = match &tree.unit {
            Some(unit) if ty.is_wide() => {
                self.sink
                    .error(Code::TimeUnit, unit.span, "an address with a clock unit", "no times here")
                    .help("only numbers hold times, as `u32 time(1us)`");
                None
            }
            Some(unit) => self.time(unit, "the unit of a clock"),
            None => None,
        };
        let is_either_family = tree.ty.is_some_and(|ty| ty.text == "ip");
        let initial = match &tree.initial {
            Some(value) => self
                .constant(value, "an initial value")
                .and_then(|c| {
                    if ty.is_wide() {
                        return self.wide_initial(tree.name.text, is_either_family, c, value.span);
                    }
                    self.check_fits(c, unit_ns.unwrap_or(1), ty, tree.name.text, value.span).map(u128::from)
                })
                .unwrap_or(0),
            None => 0,
        };
        let variable = Variable { name: tree.name.text.to_owned(), ty, initial, span: tree.name.span };
        let is_ipv4 = tree.ty.is_some_and(|ty| ty.text == "ipv4");
        (variable, VariableInfo { name: tree.name.text, ty, unit_ns, is_either_family, is_ipv4 })
    }

    /// Resolves a constant time in ns, above 0 and below 2^62.
    pub(super) fn time(&mut self, tree: &ast::Expr<'s>, what: &str) -> Option<u64> {
        match self.constant(tree, what)? {
            Constant::Time(ns) if ns > 0 && ns < 1 << 62 => Some(ns),
            Constant::Time(ns) => {
                let found = if ns == 0 { "0" } else { "too long" };
                self.sink
                    .error(
                        Code::BadTime,
                        tree.span,
                        format!("{what} is {found}"),
                        "expected more than 0 and less than 2^62 ns",
                    )
                    .help("2^62 ns are about 146 years");
                None
            }
            Constant::Number(n) => {
                self.sink
                    .error(Code::BadTime, tree.span, format!("{what} has no unit"), "expected a time")
                    .help(format!("write `{n}ns`, `{n}us`, `{n}ms`, `{n}s` or `{n}m`"));
                None
            }
            other => {
                self.sink
                    .error(Code::WrongKind, tree.span, format!("{what} is {}", other.kind()), "expected a time")
                    .help("times are written as `10ms` or `2s`");
                None
            }
        }
    }
}

//! Values of the attribute type `Number`.

/// Digits of precision that a number may have.
const PRECISION: usize = 38;
/// Powers of ten between which a number must lie.
const LOWEST: i64 = -128;
const HIGHEST: i64 = 126;

/// Says what is wrong with a number: no decimal number, too precise, too large or too small.
pub(crate) fn check(text: &str) -> Result<(), &'static str> {
    let number = Parts::split(text).ok_or("is not a decimal number")?;
    let digits = format!("{}{}", number.whole, number.fraction);
    let leading = digits.len() - digits.trim_start_matches('0').len();
    let significant = digits.trim_matches('0');
    if significant.is_empty() {
        return Ok(());
    }
    if significant.len() > PRECISION {
        return Err("has more than 38 digits");
    }
    // The power of ten of the first digit that counts.
    let whole = i64::try_from(number.whole.len()).unwrap_or(i64::MAX);
    let leading = i64::try_from(leading).unwrap_or(i64::MAX);
    let magnitude = number
        .exponent
        .saturating_add(whole)
        .saturating_sub(leading)
        .saturating_sub(1);
    if (LOWEST..=HIGHEST).contains(&magnitude) {
        Ok(())
    } else {
        Err("is not between 10^-128 and 10^126")
    }
}

/// The number without the zeros in front of its whole part and behind its fraction.
pub(crate) fn trimmed(text: &str) -> String {
    let Some(number) = Parts::split(text) else {
        return text.to_owned();
    };
    let whole = match number.whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let fraction = number.fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{}{whole}{dot}{fraction}{}", number.sign, number.tail)
}

struct Parts<'a> {
    sign: &'a str,
    whole: &'a str,
    fraction: &'a str,
    /// The exponent as it is written, with its letter.
    tail: &'a str,
    exponent: i64,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (sign, _) = text.split_at(text.len() - unsigned.len());
        let (mantissa, tail) = match unsigned.find(['e', 'E']) {
            Some(at) => unsigned.split_at(at),
            None => (unsigned, ""),
        };
        let exponent = match tail.get(1..) {
            None => 0,
            Some(digits) => digits.parse().ok()?,
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let has_digits = !whole.is_empty() || !fraction.is_empty();
        (has_digits && all_digits(whole) && all_digits(fraction)).then_some(Self {
            sign,
            whole,
            fraction,
            tail,
            exponent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_of_up_to_38_digits_are_taken() {
        for text in [
            "0",
            "-7",
            "+7",
            "42",
            "3.14",
            ".5",
            "1e126",
            "1E-128",
            "-0.000",
            &"9".repeat(38),
            &format!("{}00", "1".repeat(38)),
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn other_texts_and_numbers_out_of_range_are_refused() {
        for text in [
            "",
            "-",
            ".",
            "seven",
            "1,5",
            "0x10",
            "1e",
            "1e1.5",
            " 1",
            "NaN",
            "1e127",
            "1e-129",
            &"9".repeat(39),
            &format!("1{}", "0".repeat(127)),
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn idle_zeros_are_trimmed_and_no_others() {
        for (text, expected) in [
            ("007", "7"),
            ("7.50", "7.5"),
            ("100", "100"),
            ("-00.00", "-0"),
            ("0.5", "0.5"),
            ("1.0e3", "1e3"),
        ] {
            assert_eq!(trimmed(text), expected);
        }
    }
}

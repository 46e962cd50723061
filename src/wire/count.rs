//! Anthropic's count of a prompt's tokens, for engines that have none.
//!
//! The number is the estimate that routing goes by, no tokenizer's; whoever answers with it says so.

use crate::routing::ask::Ask;

/// The answer to `/v1/messages/count_tokens`, as far as it can be told from the request alone.
pub fn answer(ask: &Ask) -> Vec<u8> {
    format!(r#"{{"input_tokens":{}}}"#, ask.prompt_tokens).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::ask::Endpoint;
    use crate::wire::peek::peek;

    #[track_caller]
    fn check(body: &str, expected: &str) {
        let ask = peek(body.as_bytes(), Endpoint::AnthropicCountTokens).unwrap().ask;
        assert_eq!(answer(&ask), expected.as_bytes());
    }

    #[test]
    fn everything_that_is_sent_counts() {
        check(r#"{"model":"m","messages":[{"role":"user","content":"Hello world"}]}"#, r#"{"input_tokens":6}"#);
        check(
            r#"{"model":"m","system":"Be brief","tools":[{"name":"abc"}],"messages":[{"role":"user","content":[]}]}"#,
            r#"{"input_tokens":14}"#,
        );
        check(r#"{"model":"m"}"#, r#"{"input_tokens":1}"#);
    }
}

//! A chat's body of about a given size: a system prompt, two turns and a question.

pub fn chat(model: &str, size_bytes: usize) -> String {
    const SENTENCE: &str = "The quick brown fox jumps over the lazy dog while the old clock strikes twelve. ";
    let text = |bytes: usize| SENTENCE.chars().cycle().take(bytes).collect::<String>();
    let share = size_bytes.saturating_sub(400) / 4;
    let (system, question, answer) = (text(share), text(share), text(2 * share));
    format!(
        r#"{{"model":"{model}","messages":[{{"role":"system","content":"You are a helpful assistant. {system}"}},{{"role":"user","content":"Conversation @@@@@@@@: {question}"}},{{"role":"assistant","content":"{answer}"}},{{"role":"user","content":"And what does the dog do then?"}}],"max_tokens":256,"temperature":0.7}}"#
    )
}

//! Documents in the order of their likeness to a query, in the two forms that engines have.
//!
//! The score is the share of the query's words that the document has: nothing a model would say, but
//! something that a person can check.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::sim::engine::Usage;

/// What is to be put in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    pub query: String,
    pub documents: Vec<String>,
    /// The best so many; all when not said.
    pub top_n: Option<usize>,
}

/// A document in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Where it stood in the request.
    pub index: usize,
    pub document: String,
    pub score: f64,
}

impl Ranking {
    /// The best first; of equals the first asked.
    pub fn ranked(&self) -> Vec<Ranked> {
        let query = words(&self.query);
        let rank = |(index, document): (usize, &String)| {
            let shared = query.intersection(&words(document)).count();
            Ranked { index, document: document.clone(), score: shared as f64 / query.len().max(1) as f64 }
        };
        let mut ranked: Vec<Ranked> = self.documents.iter().enumerate().map(rank).collect();
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
        ranked.truncate(self.top_n.unwrap_or(usize::MAX));
        ranked
    }
}

fn words(text: &str) -> HashSet<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// As vLLM and llama.cpp have it from Jina.
pub fn results(model: &str, ranked: &[Ranked], usage: &Usage) -> Value {
    let result = |ranked: &Ranked| json!({"index": ranked.index, "document": {"text": ranked.document}, "relevance_score": ranked.score});
    json!({
        "id": "rerank-simulated",
        "model": model,
        "usage": {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens},
        "results": ranked.iter().map(result).collect::<Vec<_>>(),
    })
}

/// As SGLang has it: a bare list.
pub fn list(_model: &str, ranked: &[Ranked], usage: &Usage) -> Value {
    let entry = |ranked: &Ranked| {
        json!({
            "score": ranked.score,
            "document": ranked.document,
            "index": ranked.index,
            "meta_info": {"prompt_tokens": usage.prompt_tokens},
        })
    };
    ranked.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_with_most_of_the_querys_words_is_first() {
        let documents = ["nothing", "Moss grows here.", "What grows on stone? Moss."];
        let query = "what grows on a stone".into();
        let ranking = Ranking { query, documents: documents.map(String::from).to_vec(), top_n: Some(2) };
        let ranked: Vec<_> = ranking.ranked().iter().map(|ranked| (ranked.index, ranked.score)).collect();
        assert_eq!(ranked, [(2, 0.8), (1, 0.2)]);
    }
}

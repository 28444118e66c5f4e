// Sampler, drafter and store of texts, and the sampling kernels one by one for tests.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "draft_sampler.h"
#include "drafter.h"
#include "float_mode.h"
#include "sampler.h"
#include "text_store.h"

namespace nb = nanobind;

namespace swiftsure {
namespace {

template <typename T>
OutArray<T> to_numpy(std::vector<T>&& values) {
    const size_t count = values.size();
    return to_array(std::move(values), {count});
}

const KernelTable& kernels_for(const std::string& isa, const InArray<float, 1>& logits) {
    if (logits.size() == 0) throw std::invalid_argument("a row of logits must have at least 1 token, got 0");
    return kernels_of(isa);
}

int64_t size(const InArray<float, 1>& logits) { return static_cast<int64_t>(logits.size()); }

int64_t argmax(const std::string& isa, InArray<float, 1> logits) {
    const KernelTable& kernels = kernels_for(isa, logits);
    nb::gil_scoped_release release;
    const FloatMode ieee;
    return kernels.argmax(logits.data(), size(logits));
}

int64_t gumbel_argmax(const std::string& isa, InArray<float, 1> logits, float temperature, uint64_t seed, uint32_t choice,
                      uint32_t position) {
    const KernelTable& kernels = kernels_for(isa, logits);
    if (!(temperature > 0 && temperature <= kMaxTemperature))
        throw std::invalid_argument("temperature must be above 0 and at most 1000000");
    nb::gil_scoped_release release;
    const FloatMode ieee;
    return kernels.gumbel_argmax(logits.data(), size(logits), temperature, seed, choice, position);
}

double log_sum_exp(const std::string& isa, InArray<float, 1> logits) {
    const KernelTable& kernels = kernels_for(isa, logits);
    nb::gil_scoped_release release;
    const FloatMode ieee;
    return kernels.log_sum_exp(logits.data(), size(logits));
}

OutArray<double> log_probs(const std::string& isa, InArray<float, 1> logits, InArray<int32_t, 1> ids) {
    const double total = log_sum_exp(isa, logits);
    std::vector<double> values(ids.size());
    for (size_t i = 0; i < values.size(); ++i) {
        const int32_t id = ids.data()[i];
        if (id < 0 || id >= size(logits)) throw std::invalid_argument("ids must be in the vocabulary, got " + std::to_string(id));
        values[i] = static_cast<double>(logits.data()[id]) - total;
    }
    return to_numpy(std::move(values));
}

std::tuple<OutArray<int32_t>, OutArray<double>> top_log_probs(const std::string& isa, InArray<float, 1> logits, int64_t count) {
    if (count < 0) throw std::invalid_argument("the number of tokens must be at least 0, got " + std::to_string(count));
    const KernelTable& kernels = kernels_for(isa, logits);
    const double total = log_sum_exp(isa, logits);
    std::vector<int32_t> ids;
    std::vector<double> values;
    {
        nb::gil_scoped_release release;
        const FloatMode ieee;
        for (const Candidate& c : largest_logits(kernels, logits.data(), size(logits), count)) {
            ids.push_back(c.id);
            values.push_back(static_cast<double>(c.value) - total);
        }
    }
    return {to_numpy(std::move(ids)), to_numpy(std::move(values))};
}

OutArray<uint32_t> philox4x32(const std::string& isa, InArray<uint32_t, 1> counter, InArray<uint32_t, 1> key) {
    if (counter.size() != 4 || key.size() != 2) throw std::invalid_argument("Philox4x32 takes a counter of 4 words and a key of 2");
    std::vector<uint32_t> words(4);
    kernels_of(isa).philox_words(counter.data(), key.data(), words.data());
    return to_numpy(std::move(words));
}

std::tuple<OutArray<float>, OutArray<float>> gumbel_of_words(const std::string& isa, InArray<uint32_t, 1> words) {
    const FloatMode ieee;
    std::vector<float> noise(words.size()), bound(words.size());
    kernels_of(isa).gumbel_of_words(words.data(), static_cast<int64_t>(words.size()), noise.data(), bound.data());
    return {to_numpy(std::move(noise)), to_numpy(std::move(bound))};
}

void register_functions(nb::module_& m) {
    m.def("argmax", argmax, nb::arg("isa"), nb::arg("logits").noconvert());
    m.def("gumbel_argmax", gumbel_argmax, nb::arg("isa"), nb::arg("logits").noconvert(), nb::arg("temperature"), nb::arg("seed"),
          nb::arg("choice"), nb::arg("position"));
    m.def("log_sum_exp", log_sum_exp, nb::arg("isa"), nb::arg("logits").noconvert());
    m.def("log_probs", log_probs, nb::arg("isa"), nb::arg("logits").noconvert(), nb::arg("ids"));
    m.def("top_log_probs", top_log_probs, nb::arg("isa"), nb::arg("logits").noconvert(), nb::arg("count"));
    m.def("philox4x32", philox4x32, nb::arg("isa"), nb::arg("counter"), nb::arg("key"));
    m.def("gumbel_of_words", gumbel_of_words, nb::arg("isa"), nb::arg("words"));
}

void make_sampler(Sampler* place, int64_t vocab, const std::string& isa, float temperature, double top_p, int64_t top_k, double min_p,
                  uint64_t seed, uint32_t choice, float repetition_penalty, float presence_penalty, float frequency_penalty,
                  const std::unordered_map<int32_t, float>& logit_bias) {
    SamplerSettings settings = {.vocab = vocab,
                                .temperature = temperature,
                                .top_p = top_p,
                                .top_k = top_k,
                                .min_p = min_p,
                                .seed = seed,
                                .choice = choice,
                                .repetition_penalty = repetition_penalty,
                                .presence_penalty = presence_penalty,
                                .frequency_penalty = frequency_penalty,
                                .logit_bias = {logit_bias.begin(), logit_bias.end()}};
    new (place) Sampler(kernels_of(isa), std::move(settings));
}

OutArray<int32_t> accept(Sampler& sampler, InArray<float, 2> logits, InArray<int32_t, 1> draft) {
    const size_t rows = logits.shape(0);
    if (rows < 1 || static_cast<int64_t>(logits.shape(1)) != sampler.vocab())
        throw std::invalid_argument("logits must have shape (rows, " + std::to_string(sampler.vocab()) + ") with at least 1 row, got (" +
                                    std::to_string(rows) + ", " + std::to_string(logits.shape(1)) + ")");
    if (draft.size() + 1 != rows)
        throw std::invalid_argument("the draft must have one token less than there are rows, got " + std::to_string(draft.size()) +
                                    " for " + std::to_string(rows) + " rows");
    std::vector<int32_t> tokens(rows);
    {
        nb::gil_scoped_release release;
        tokens.resize(static_cast<size_t>(sampler.accept(logits.data(), static_cast<int64_t>(rows), draft.data(), tokens.data())));
    }
    return to_numpy(std::move(tokens));
}

OutArray<float> process(Sampler& sampler, InArray<float, 1> logits) {
    if (size(logits) != sampler.vocab())
        throw std::invalid_argument("logits must have " + std::to_string(sampler.vocab()) + " tokens, got " + std::to_string(size(logits)));
    std::vector<float> out(logits.size());
    {
        nb::gil_scoped_release release;
        sampler.process(logits.data(), out.data());
    }
    return to_numpy(std::move(out));
}

void register_sampler(nb::module_& m) {
    nb::class_<Sampler>(m, "Sampler")
        .def("__init__", make_sampler, nb::arg("vocab_size"), nb::kw_only(), nb::arg("isa"), nb::arg("temperature"), nb::arg("top_p"),
             nb::arg("top_k"), nb::arg("min_p"), nb::arg("seed"), nb::arg("choice"), nb::arg("repetition_penalty"),
             nb::arg("presence_penalty"), nb::arg("frequency_penalty"), nb::arg("logit_bias"))
        .def(
            "prime", [](Sampler& s, InArray<int32_t, 1> ids) { s.prime(ids.data(), static_cast<int64_t>(ids.size())); },
            nb::arg("prompt_ids"))
        .def("accept", accept, nb::arg("logits").noconvert(), nb::arg("draft"))
        .def("process", process, nb::arg("logits").noconvert())
        .def_prop_ro("position", &Sampler::position);
}

void make_draft_sampler(DraftSampler* place, int64_t vocab, const std::string& isa, float temperature, double top_p, int64_t top_k,
                        double min_p, uint64_t seed, uint32_t choice, InArray<int32_t, 1> shortlist) {
    SamplerSettings settings = {.vocab = vocab,
                                .temperature = temperature,
                                .top_p = top_p,
                                .top_k = top_k,
                                .min_p = min_p,
                                .seed = seed,
                                .choice = choice,
                                .logit_bias = {}};
    new (place) DraftSampler(kernels_of(isa), std::move(settings), {shortlist.data(), shortlist.data() + shortlist.size()});
}

std::tuple<int32_t, float> choose(DraftSampler& sampler, InArray<float, 1> logits, uint32_t position) {
    if (size(logits) != sampler.columns())
        throw std::invalid_argument("logits must have " + std::to_string(sampler.columns()) + " columns, got " +
                                    std::to_string(size(logits)));
    const DraftSampler::Choice choice = sampler.choose(logits.data(), position);
    return {choice.token, choice.chance};
}

void register_draft_sampler(nb::module_& m) {
    nb::class_<DraftSampler>(m, "DraftSampler")
        .def("__init__", make_draft_sampler, nb::arg("vocab_size"), nb::kw_only(), nb::arg("isa"), nb::arg("temperature"), nb::arg("top_p"),
             nb::arg("top_k"), nb::arg("min_p"), nb::arg("seed"), nb::arg("choice"), nb::arg("shortlist").noconvert())
        .def("choose", choose, nb::arg("logits").noconvert(), nb::arg("position"));
}

void make_drafter(Drafter* place, const std::string& isa, int max_ngram, float temperature, uint64_t seed, uint32_t choice) {
    new (place) Drafter(kernels_of(isa), max_ngram, {.temperature = temperature, .seed = seed, .choice = choice});
}

void register_drafter(nb::module_& m) {
    nb::class_<Drafter>(m, "Drafter")
        .def("__init__", make_drafter, nb::kw_only(), nb::arg("isa"), nb::arg("max_ngram"), nb::arg("temperature"), nb::arg("seed"),
             nb::arg("choice"))
        .def(
            "extend",
            [](Drafter& d, InArray<int32_t, 1> ids) {
                nb::gil_scoped_release release;
                d.extend(ids.data(), static_cast<int64_t>(ids.size()));
            },
            nb::arg("ids"))
        .def(
            "observe", [](Drafter& d, InArray<int32_t, 1> ids) { d.observe(ids.data(), static_cast<int64_t>(ids.size())); }, nb::arg("ids"))
        .def(
            "draft",
            [](const Drafter& d, int64_t max_tokens) {
                Drafter::Draft draft = d.draft(max_tokens);
                return std::tuple{to_numpy(std::move(draft.tokens)), std::move(draft.chances)};
            },
            nb::arg("max_tokens"))
        .def_prop_ro("match_length", &Drafter::match_length)
        .def_prop_ro("memory_bytes", &Drafter::memory_bytes)
        .def("__len__", &Drafter::length);
}

void register_text_store(nb::module_& m) {
    nb::class_<TextStore>(m, "TextStore")
        .def(nb::init<int64_t>(), nb::arg("capacity"))
        .def(
            "add", [](TextStore& s, InArray<int32_t, 1> ids) { s.add(ids.data(), static_cast<int64_t>(ids.size())); }, nb::arg("ids"))
        .def(
            "find",
            [](const TextStore& s, InArray<int32_t, 1> ids, int64_t max_match, int64_t max_tokens) {
                TextStore::Match match = s.find(ids.data(), static_cast<int64_t>(ids.size()), max_match, max_tokens);
                return std::tuple{match.length, to_numpy(std::move(match.tokens))};
            },
            nb::arg("ids"), nb::arg("max_match"), nb::arg("max_tokens"))
        .def("clear", &TextStore::clear)
        .def_prop_ro("memory_bytes", &TextStore::memory_bytes)
        .def("__len__", &TextStore::tokens);
}

}  // namespace

void register_sampling(nb::module_& m) {
    register_functions(m);
    register_sampler(m);
    register_draft_sampler(m);
    register_drafter(m);
    register_text_store(m);
}

}  // namespace swiftsure

// Steps and evaluations.
#include "trainer/engine/steps.h"
#include "common/hash.h"
#include "common/log.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- evaluation

bool engine_evaluation_due(const Engine *engine) {
    const uint64_t step = engine->state.step, interval = (uint64_t)engine->config.eval_interval;
    if (!interval || engine->state.evaluated) return false;
    return step >= engine_end(engine) || schedule_evaluates(&engine->state.cooldown, step, interval);
}

static FeedResult evaluate_splits(Engine *engine, Evaluation evaluations[SPLIT_COUNT]) {
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL; split++) {
        evaluation_init(&evaluations[split], &engine->config, engine->feed, split, engine_use(engine)->consumed);
        FeedResult result = evaluation_run(&evaluations[split], &engine->network, &engine->source, engine->token_bytes);
        result = step_agree(&engine->collective, result);
        if (result != FEED_BATCH) return result;
    }
    return FEED_BATCH;
}

FeedResult engine_evaluate(Engine *engine, Evaluation evaluations[SPLIT_COUNT]) {
    Evaluation averaged[SPLIT_COUNT];
    batch_stream_cancel(&engine->stream);
    FeedResult result = evaluate_splits(engine, evaluations);
    if (result != FEED_BATCH || !engine_has_average(engine)) return result;
    step_swap_average(&engine->network);
    result = evaluate_splits(engine, averaged);
    step_swap_average(&engine->network);
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL && result == FEED_BATCH; split++)
        evaluations[split].ema_loss = averaged[split].loss;
    return result;
}

// Losses of another rule are not compared.
static void check_rule(RunState *state, uint64_t rule) {
    if (isfinite(state->best_loss) && state->eval_rule != rule) {
        log_line("the best validation loss so far, %.4f at step %llu, is of an evaluation of another order, size, "
                 "dataset, mixture or loss_tokens: the best loss starts again",
                 state->best_loss, (unsigned long long)state->best_step);
        state->best_loss = state->first_loss = NAN;
    }
    state->eval_rule = rule;
}

// How often the run has seen the training data of its dataset.
static double epochs(const Engine *engine) {
    const DatasetUse *use = &engine->state.datasets[engine->state.dataset];
    return (double)use->consumed * (double)engine->config.block_size /
           (double)feed_dataset(engine->feed)->tokens[SPLIT_TRAIN];
}

bool engine_take_evaluation(Engine *engine, const Evaluation evaluations[SPLIT_COUNT]) {
    enum { DIGITS = 17 };
    const Evaluation *val = &evaluations[SPLIT_VAL], *trained = &evaluations[SPLIT_TRAIN];
    RunState *state = &engine->state;
    check_rule(state, val->rule);
    const bool best = isfinite(val->loss) && !(state->best_loss <= val->loss);
    state->evaluated = true, state->last_loss = val->loss;
    if (!state->step) state->first_loss = val->loss;
    if (best) state->best_loss = val->loss, state->best_step = state->step;
    Buffer members = {0};
    evaluation_add_value(&members, "val_loss", val->loss, DIGITS);
    evaluation_add_value(&members, "train_loss", trained->loss, DIGITS);
    if (engine_has_average(engine)) {
        evaluation_add_value(&members, "ema_val_loss", val->ema_loss, DIGITS);
        evaluation_add_value(&members, "ema_train_loss", trained->ema_loss, DIGITS);
    }
    evaluation_add_value(&members, "val_bpb", val->bits_per_byte, DIGITS);
    evaluation_add_value(&members, "train_bpb", trained->bits_per_byte, DIGITS);
    evaluation_add_sources(&members, val, DIGITS);
    evaluation_add_sources(&members, trained, DIGITS);
    if (feed_dataset(engine->feed)->source_count == 1) evaluation_add_value(&members, "epochs", epochs(engine), DIGITS);
    buffer_print(&members, ", \"eval_rule\": \"%016llx\"", (unsigned long long)val->rule);
    engine_record(engine, &members);
    return best;
}

// ---- steps

bool engine_skip_due(const Engine *engine) {
    const RunState *state = &engine->state;
    const uint64_t consumed = state->datasets[state->dataset].consumed;
    return consumed >= state->skip_from && consumed < state->skip_to;
}

void engine_skip_samples(Engine *engine) {
    const RunState *state = &engine->state;
    Buffer line = {0};
    const uint64_t consumed = engine_use(engine)->consumed;
    engine_use(engine)->consumed = state->skip_to;
    log_line("skipping samples %llu to %llu", (unsigned long long)consumed, (unsigned long long)state->skip_to - 1);
    buffer_print(&line, ", \"passed_from\": %llu, \"passed_to\": %llu", (unsigned long long)consumed,
                 (unsigned long long)state->skip_to);
    engine_record(engine, &line);
}

// Batches are requested ahead up to the next evaluation or the end of the run.
static void start_stream(Engine *engine) {
    const Config *config = &engine->config;
    const RunState *state = &engine->state;
    const Collective *ranks = &engine->collective;
    const uint64_t rows = (uint64_t)config->batch_size.value;
    const uint64_t consumed = engine_use(engine)->consumed, between = (uint64_t)config->eval_interval;
    uint64_t until = engine_end(engine) - state->step;
    if (between && until > between - state->step % between) until = between - state->step % between;
    const FeedRequest form = {
        .split = SPLIT_TRAIN,
        .mode = (uint8_t)config->sampling,
        .rows = (uint32_t)rows,
        .seed = (uint64_t)config->seed,
    };
    // The processes take the micro-batches of a step in turn.
    if (ranks->world > 1)
        engine->stream.turns = (BatchTurns){ranks->rank * rows, (ranks->world - 1) * rows, engine_sequences(engine)};
    batch_stream_start(&engine->stream, &engine->source, &form, consumed, consumed + until * engine_sequences(engine));
}

// The state after a step.
static void take_step(Engine *engine, const uint8_t fingerprint[32], const StepResult *result) {
    const Config *config = &engine->config;
    RunState *state = &engine->state;
    if (!state->step) engine->start = *state;
    if (!result->finite && !state->nonfinite_streak) engine->before_streak = *state;
    spike_add(&state->spikes, result->loss, (double)result->norm, config->spike_z);
    state->step++, state->updates += result->applied;
    engine_use(engine)->consumed += engine_sequences(engine);
    state->tokens += engine_sequences(engine) * (uint64_t)config->block_size;
    state->evaluated = false, state->last_loss = NAN;
    state->nonfinite += !result->finite;
    state->nonfinite_streak = result->finite ? 0 : state->nonfinite_streak + 1;
    chain_end(&engine->chain, &engine->network, config, fingerprint, result, state);
    if (result->targets) loss_scaler_step(&state->scaler, isfinite(result->loss), isfinite(result->norm));
}

FeedResult engine_step(Engine *engine, ComputedStep *step) {
    const Config *config = &engine->config;
    RunState *state = &engine->state;
    Collective *ranks = &engine->collective;
    Network *network = &engine->network;
    StepResult *result = &step->result;
    if (engine_skip_due(engine)) engine_skip_samples(engine);
    start_stream(engine);
    chain_begin(&engine->chain);
    const uint64_t started = clock_ns(), waited = feed_stats(engine->feed).wait_ns, sent = collective_sent(ranks);
    const StepPosition place = {state->step, state->updates, loss_scaler_scale(&state->scaler), &state->spikes,
                                &state->cooldown};
    step->first_sample = engine_use(engine)->consumed, step->loss_scale = place.loss_scale;
    uint8_t fingerprint[32];
    memcpy(fingerprint, feed_fingerprint(engine->feed, step->first_sample + engine_sequences(engine) - 1),
           sizeof fingerprint);
    FeedResult found = step_gradients(network, config, &engine->stream, &place);
    if (found == FEED_BATCH && chain_share(&engine->chain, network) < 0) found = FEED_ERROR;
    if (found == FEED_BATCH && step_apply(network, config, &place, result) < 0) found = FEED_ERROR;
    if (found != FEED_BATCH) return batch_stream_cancel(&engine->stream), found;
    step->spike = spike_score(&state->spikes, result->loss, (double)result->norm);
    take_step(engine, fingerprint, result);
    step->ns = clock_ns() - started, step->wait_ns = feed_stats(engine->feed).wait_ns - waited;
    step->sent = collective_sent(ranks) - sent;
    return FEED_BATCH;
}

static void print_number(char out[24], double number) {
    if (isfinite(number))
        snprintf(out, 24, "%.17g", number);
    else
        snprintf(out, 24, "null");
}

void step_add_members(Buffer *line, const Engine *engine, const ComputedStep *step) {
    const StepResult *result = &step->result;
    char loss[24], norm[24], link[65];
    print_number(loss, result->loss), print_number(norm, (double)result->norm);
    hex_encode(link, engine->state.chain, 32);
    buffer_print(line, ", \"loss\": %s, \"norm\": %s", loss, norm);
    if (engine->plan.answers) buffer_print(line, ", \"targets\": %llu", (unsigned long long)result->targets);
    if (engine->state.scaler.scale > 0) buffer_print(line, ", \"loss_scale\": %.9g", (double)step->loss_scale);
    buffer_print(line, ", \"lr\": %.9g, \"first_sample\": %llu, \"chain\": \"%s\"", result->learning_rate,
                 (unsigned long long)step->first_sample, link);
}

bool step_is_spike(const Engine *engine, const ComputedStep *step) {
    return step->spike > engine->config.spike_z && engine->config.spike_action != SPIKE_OFF;
}

void engine_record_spike(Engine *engine, const ComputedStep *step) {
    Buffer line = {0};
    if (!step_is_spike(engine, step)) return;
    buffer_print(&line, ", \"spike\": %.3f, \"applied\": %s", step->spike, step->result.applied ? "true" : "false");
    engine_record(engine, &line);
}

void engine_record_step(Engine *engine, const ComputedStep *step) {
    Buffer line = {0};
    step_add_members(&line, engine, step);
    engine_record(engine, &line);
    engine_record_spike(engine, step);
}

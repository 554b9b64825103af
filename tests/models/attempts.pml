/* Runs in flight while their home moves: results, attempt leases, re-homing, reaping, adoption, and a concurrency key.
 *
 * One run of at most two attempts; an old owner (0) and a new one (1); two workers; one slot of a concurrency key, for
 * which another run competes. Leases are kept as the time that is left of them, so that the clock never has to stop.
 * docs/models.md says what is left out and why that is sound. Every planted defect is a preprocessor define DEFECT_*;
 * each must break an assertion, and without one the search must end without an error.
 */

#define LEASE 2       /* the length of an attempt's lease, and of a slot's */
#define MARGIN 1      /* X of rule 14: how long a proof is good for */
#ifndef FAULTS
#define FAULTS 1      /* how many of a crash of a worker, a death of the old owner, a false alarm come in one history */
#endif
#define MAX_ATTEMPT 2

#define NONE 0
#define OPEN 1
#define CLOSED 2

#define PENDING 0
#define LEASED 1
#define SUCCEEDED 2
#define DEAD 3

#define RUNNING 0
#define SUCCESS 1
#define FAILURE 2
#define LOST 3        /* the reaper's word */
#define ADOPT 4       /* not a word: the statement that takes the run home */

byte faults = FAULTS;

/* What SQL holds. Term 1 is the old owner's, 2 the successor's, 3 the old owner's once more, who took 2 over. */
byte term[4];
byte run_state = PENDING, run_attempt = 0, run_home = 1;
byte outcome[3];                    /* of each attempt, as recorded */
byte slot_holder = 0, slot_left = 0;

#define OTHER 9                     /* the run that competes for the slot */
bit other_runs = 0, other_done = 0;
byte other_left = 0;
byte release_of = 0;                /* a release of an attempt's slot, under way a second time: its answer was lost */

/* The dispatchers: the attempt that each holds in memory, under which term, what is left of its lease and of the proof
 * that it may be renewed; whether SQL's lease is still the one that it read; and one statement on its way. */
bit alive[2];
byte held[2], held_term[2], held_left[2], proof_left[2];
bit lease_known[2];
byte sent[2], s_attempt[2], s_term[2], s_home[2];
#ifdef DEFECT_MARGIN_FROM_SENDING
byte s_left[2];
#endif

/* The workers: an attempt each, what is left of its lease as far as the worker knows, and what came of it. */
byte attempt[2], left[2], word[2];
bit crashed[2];

#define OWNER(t) ((t) == 2)
#define HOLDS(d, t) (OWNER(t) == (d) && term[t] == OPEN)
#define IS_SPLIT (term[1] == OPEN && term[2] != NONE)
#define IS_LIVE(w) (attempt[w] != 0 && word[w] == RUNNING && !crashed[w] && left[w] > 0)
#define OTHER_IS_LIVE (other_runs && other_left > 0)

/* At most one live lease of the run; at most one user of the key's only slot. */
inline check_leases() {
  assert(!(IS_LIVE(0) && IS_LIVE(1)));
  assert(!(OTHER_IS_LIVE && (IS_LIVE(0) || IS_LIVE(1))))
}

inline raise_to(mark, value) {
  if
  :: mark < value -> mark = value
  :: else -> skip
  fi
}

inline hold_attempt(d, t, how_long) {
  held[d] = run_attempt; held_term[d] = t; held_left[d] = how_long; proof_left[d] = MARGIN + 1;
  lease_known[d] = 1; lease_known[1 - d] = 0
}
inline forget_attempt(d) { held[d] = 0; held_term[d] = 0; held_left[d] = 0; proof_left[d] = 0; lease_known[d] = 0 }
inline forget_statement(d) { sent[d] = 0; s_attempt[d] = 0; s_term[d] = 0; s_home[d] = 0 }
inline forget_assignment(w) { attempt[w] = 0; left[w] = 0; word[w] = RUNNING }

inline hold_slot() {
  if
  :: slot_holder == run_attempt -> slot_left = LEASE + MARGIN
  :: else -> skip
  fi
}

/* --- leasing: the run's due row is consumed under the term of its bucket, which may be any open one --- */

#define CAN_LEASE(d, t) (HOLDS(d, t) && run_state == PENDING && sent[d] == 0 && held[d] == 0 \
                         && (slot_holder == 0 || slot_left == 0))
inline lease(d, t, w) {
  run_attempt++; run_state = LEASED; run_home = t;
  slot_holder = run_attempt; slot_left = LEASE + MARGIN;
  hold_attempt(d, t, LEASE);
  attempt[w] = run_attempt; left[w] = LEASE; word[w] = RUNNING;
  check_leases()
}

/* --- heartbeats (rule 14): acknowledged from memory; the worker counts from its sending --- */

#ifdef DEFECT_RENEWAL_UNPROVEN
#define IS_PROVEN(d) 1
#else
#define IS_PROVEN(d) (proof_left[d] > 0)
#endif
#ifdef DEFECT_RENEWAL_WHILE_REAPING
#define IS_ENDING(d) 0
#else
#define IS_ENDING(d) (sent[d] == LOST)
#endif
#ifdef DEFECT_RENEWAL_PAST_SLOT
#define SLOT_LASTS 1
#else
#define SLOT_LASTS (slot_holder == run_attempt && LEASE <= slot_left)
#endif
#define CAN_RENEW(d, w) (alive[d] && attempt[w] != 0 && word[w] == RUNNING && !crashed[w] && held[d] == attempt[w] \
                         && left[w] < LEASE && IS_PROVEN(d) && !IS_ENDING(d) && SLOT_LASTS)
inline acknowledge_heartbeat(d, w) {
  left[w] = LEASE;
  raise_to(held_left[d], LEASE);
  check_leases()
}

/* Proof: that the term is open and undivided, so that nobody else can be the run's home; or the run's own row. A term
 * that is open and was split proves nothing: the successor takes runs home while it is open. */
#ifdef DEFECT_PROOF_BY_DIVIDED_TERM
#define PROVES(t) (term[t] == OPEN)
#else
#define PROVES(t) (term[t] == OPEN && !((t) == 1 && IS_SPLIT))
#endif
inline renew_in_sql(d) {
  if
  :: HOLDS(d, held_term[d]) && run_state == LEASED && run_attempt == held[d] && run_home == held_term[d] ->
       proof_left[d] = MARGIN + 1; lease_known[d] = 1; lease_known[1 - d] = 0;
       hold_slot()
  :: else -> forget_attempt(d)   /* refused: the term is lost, or the run has another home */
  fi
}

/* --- words: results and the reaper's --- */

#ifdef DEFECT_REQUEUE_ON_BROKEN_STREAM
#define LEASE_IS_OVER(d) 1
#else
#define LEASE_IS_OVER(d) (held_left[d] == 0)
#endif
inline send_word(d, what) {
  sent[d] = what; s_attempt[d] = held[d]; s_term[d] = held_term[d]
}

#ifdef DEFECT_COMPLETION_WITHOUT_TOKEN
#define TAKES_WORD(d, w) (held[d] != 0)
#define IS_ATTEMPT(d) 1
#else
#define TAKES_WORD(d, w) (held[d] == attempt[w])
#define IS_ATTEMPT(d) (run_attempt == s_attempt[d])
#endif
#ifdef DEFECT_REAP_AWAY_FROM_HOME
#define IS_HOME(d) (run_home == s_term[d] || sent[d] == LOST)
#define LEASE_STANDS(d) 1
#else
#define IS_HOME(d) (run_home == s_term[d])
#define LEASE_STANDS(d) (sent[d] != LOST || lease_known[d])
#endif

/* The slot of the key is released by compare-and-set on its holder. */
inline release_slot(holder) {
  if
#ifdef DEFECT_RELEASE_OF_ANY_HOLDER
  :: true -> slot_holder = 0; slot_left = 0
#else
  :: slot_holder == holder -> slot_holder = 0; slot_left = 0
  :: else -> skip
#endif
  fi
}

inline end_attempt(d) {
  if
  :: HOLDS(d, s_term[d]) && run_state == LEASED && IS_ATTEMPT(d) && IS_HOME(d) && LEASE_STANDS(d) ->
       assert(term[run_home] == OPEN);
       assert(sent[d] == LOST || run_attempt == s_attempt[d]);
       assert(outcome[run_attempt] == 0);
       outcome[run_attempt] = sent[d];
       release_slot(run_attempt);
       release_of = run_attempt;
       if
       :: sent[d] == SUCCESS -> run_state = SUCCEEDED
       :: sent[d] != SUCCESS && run_attempt < MAX_ATTEMPT -> run_state = PENDING
       :: else -> run_state = DEAD
       fi;
       forget_attempt(d);
       check_leases()
  :: else -> forget_attempt(d)   /* refused: the term is lost, or the row says otherwise */
  fi;
  forget_statement(d)
}

/* Rule 13: what to answer to a word that this process cannot record, by the run's row. While the row says that the word's
 * attempt is current, the worker keeps the word and brings it to the run's home. */
#define IS_CURRENT(w) (run_state == LEASED && run_attempt == attempt[w])
#ifdef DEFECT_STALE_UNREAD
#define IS_ANSWERED(d, w) (held[d] != attempt[w])
#else
#define IS_ANSWERED(d, w) (held[d] != attempt[w] && !IS_CURRENT(w))
#endif
inline answer_word(w) {
  assert(!IS_CURRENT(w));                                       /* a word that counts is not thrown away */
  assert(word[w] != SUCCESS || outcome[attempt[w]] == SUCCESS   /* accepted: it stands */ ||
         outcome[attempt[w]] == LOST);                       /* stale: the lease ended before */
  forget_assignment(w)
}

/* --- adoption (rules 12 and 14) --- */

#ifdef DEFECT_ADOPTION_WITHOUT_MARGIN
#define ADOPTED_FOR LEASE
#else
#define ADOPTED_FOR (LEASE + MARGIN)
#endif
#define CAN_ADOPT(d, t) (HOLDS(d, t) && sent[d] == 0 && run_state == LEASED && run_home < (t))
inline send_adoption(d, t) {
  sent[d] = ADOPT; s_term[d] = t; s_home[d] = run_home
#ifdef DEFECT_MARGIN_FROM_SENDING
  ; s_left[d] = ADOPTED_FOR
#endif
}

#ifdef DEFECT_ADOPTION_WITHOUT_FENCE
#define MAY_ADOPT(d) 1
#else
#define MAY_ADOPT(d) HOLDS(d, s_term[d])
#endif
inline adopt(d) {
  if
  :: MAY_ADOPT(d) && run_state == LEASED && run_home == s_home[d] ->
       assert(term[s_term[d]] == OPEN);
       run_home = s_term[d];
       hold_slot();
#ifdef DEFECT_MARGIN_FROM_SENDING
       hold_attempt(d, s_term[d], s_left[d])
#else
       /* From its arrival: it may have waited, and the old owner could prove itself until then. */
       hold_attempt(d, s_term[d], ADOPTED_FOR)
#endif
  :: else -> skip
  fi;
  forget_statement(d)
}

/* --- the processes --- */

proctype dispatcher(byte me) {
  byte t, w;
  do
  :: atomic { alive[me] && (CAN_LEASE(me, 1) || CAN_LEASE(me, 2) || CAN_LEASE(me, 3)) &&
       ((attempt[0] == 0 && !crashed[0]) || (attempt[1] == 0 && !crashed[1])) ->
       if
       :: CAN_LEASE(me, 1) -> t = 1
       :: CAN_LEASE(me, 2) -> t = 2
       :: CAN_LEASE(me, 3) -> t = 3
       fi;
       if
       :: attempt[0] == 0 && !crashed[0] -> w = 0
       :: else -> w = 1
       fi;
       lease(me, t, w); t = 0; w = 0 }
  :: atomic { CAN_RENEW(me, 0) -> acknowledge_heartbeat(me, 0) }
  :: atomic { CAN_RENEW(me, 1) -> acknowledge_heartbeat(me, 1) }
  :: atomic { alive[me] && held[me] != 0 && sent[me] == 0 && proof_left[me] <= MARGIN && PROVES(held_term[me]) ->
       proof_left[me] = MARGIN + 1 }
  :: atomic { alive[me] && held[me] != 0 && sent[me] == 0 &&
       (proof_left[me] <= MARGIN || (slot_holder == held[me] && slot_left < LEASE + MARGIN)) -> renew_in_sql(me) }
  :: atomic { alive[me] && held[me] != 0 && sent[me] == 0 && LEASE_IS_OVER(me) -> send_word(me, LOST) }
  :: atomic { alive[me] && sent[me] == 0 && attempt[0] != 0 && word[0] != RUNNING && !crashed[0] && TAKES_WORD(me, 0) ->
       send_word(me, word[0]);
       s_attempt[me] = attempt[0] }
  :: atomic { alive[me] && sent[me] == 0 && attempt[1] != 0 && word[1] != RUNNING && !crashed[1] && TAKES_WORD(me, 1) ->
       send_word(me, word[1]);
       s_attempt[me] = attempt[1] }
  :: atomic { alive[me] && attempt[0] != 0 && word[0] != RUNNING && IS_ANSWERED(me, 0) -> answer_word(0) }
  :: atomic { alive[me] && attempt[1] != 0 && word[1] != RUNNING && IS_ANSWERED(me, 1) -> answer_word(1) }
  :: atomic { alive[me] && (CAN_ADOPT(me, 2) || CAN_ADOPT(me, 3)) ->
       if
       :: CAN_ADOPT(me, 2) -> t = 2
       :: CAN_ADOPT(me, 3) -> t = 3
       fi;
       send_adoption(me, t); t = 0 }
  /* A statement arrives, now or later, and even after its sender's death; or, then, never. */
  :: atomic { sent[me] == ADOPT -> adopt(me) }
  :: atomic { sent[me] != 0 && sent[me] != ADOPT -> end_attempt(me) }
  :: atomic { !alive[me] && sent[me] != 0 -> forget_statement(me) }
  /* An owner that lost its term learns of it. */
  :: atomic { alive[me] && held[me] != 0 && sent[me] == 0 && term[held_term[me]] != OPEN -> forget_attempt(me) }
  od
}

proctype terms() {
  do
  /* The hand-off: the successor's term opens beside the old one, which stays open until its last run has left. */
  :: atomic { term[2] == NONE && alive[1] -> term[2] = OPEN }
#ifdef DEFECT_CLOSE_WITH_RUNS_AT_HOME
  :: atomic { IS_SPLIT ->
#else
  :: atomic { IS_SPLIT && !(run_state == LEASED && run_home == 1) ->
#endif
       assert(!(run_state == LEASED && run_home == 1));
       term[1] = CLOSED }
  /* A takeover of what the old owner has, rightly or wrongly, before a hand-off or in the middle of it. */
  :: atomic { term[1] == OPEN -> term[1] = CLOSED; term[2] = (term[2] == NONE -> OPEN : term[2]) }
  /* The successor is suspected wrongly, and the old owner takes over from it. */
  :: atomic { term[2] == OPEN && faults > 0 && alive[0] ->
       faults--; term[2] = CLOSED; term[3] = OPEN }
  :: atomic { faults > 0 && alive[0] && term[3] == NONE ->
       faults--; alive[0] = 0; forget_attempt(0) }
  od
}

proctype worker(byte me) {
  do
  :: atomic { attempt[me] != 0 && word[me] == RUNNING && !crashed[me] -> word[me] = SUCCESS }
  :: atomic { attempt[me] != 0 && word[me] == RUNNING && !crashed[me] -> word[me] = FAILURE }
  :: atomic { faults > 0 && attempt[me] != 0 && !crashed[me] -> faults--; crashed[me] = 1 }
  od
}

/* The key's other run takes the slot when it is free or its lease is over; and an attempt's slot is released once more. */
proctype key_slot() {
  do
  :: atomic { release_of != 0 -> release_slot(release_of); release_of = 0 }
  :: atomic { !other_done && !other_runs && (slot_holder == 0 || slot_left == 0) ->
       slot_holder = OTHER; slot_left = LEASE; other_runs = 1; other_left = LEASE;
       check_leases() }
  :: atomic { other_runs ->
       release_slot(OTHER);
       other_runs = 0; other_done = 1; other_left = 0 }
  od
}

/* Time passes for all of them at once; where nothing is left of anything it need not. */
#define PASS(left_of_it) left_of_it = (left_of_it > 0 -> left_of_it - 1 : 0)
proctype database_clock() {
  do
  :: atomic {
       slot_left + other_left + held_left[0] + held_left[1] + proof_left[0] + proof_left[1] + left[0] + left[1] > 0 ->
       PASS(slot_left); PASS(other_left);
       PASS(held_left[0]); PASS(held_left[1]); PASS(proof_left[0]); PASS(proof_left[1]);
#ifdef DEFECT_MARGIN_FROM_SENDING
       PASS(s_left[0]); PASS(s_left[1]);
#endif
       PASS(left[0]); PASS(left[1]) }
  od
}

/* Progress: when nobody has anything left to do, the run has ended. */
proctype observer() {
  timeout;
  assert(run_state == SUCCEEDED || run_state == DEAD)
}

init {
  atomic {
    term[1] = OPEN; alive[0] = 1; alive[1] = 1;
    run dispatcher(0); run dispatcher(1); run terms(); run worker(0); run worker(1); run key_slot();
    run database_clock(); run observer()
  }
}

/* Who may write for a shard while it is handed over, taken over, killed and doubted: terms, fence, floor, watermark.
 *
 * One shard, a chain with an occurrence in bucket 0 and the next in bucket 2, and a one-off that the API puts in at any
 * time. What each step stands for is said beside it; docs/models.md says what is left out and why that is sound.
 *
 * Every planted defect is a preprocessor define DEFECT_*; each must break an assertion, and without one the search must
 * end without an error (test_models.py).
 */

#define LAST 3        /* the bucket that never ends: the clock stops in it, and what came late lands there */
#define END 4         /* no end */
#define MAX_TERM 6
#define ALL_RUNS 21   /* bits 0 and 2: the chain's occurrences; bit 4: the one-off */

#ifndef FAULTS
#define FAULTS 1      /* how many of a kill, a false alarm and a missed deadline of draining come, in one history */
#endif
#ifndef UNDER_WAY
#define UNDER_WAY 1   /* how many statements may be on their way at a time, built from what is out of date */
#endif

#define CHAIN 0       /* the due row of the chain: one row, the next occurrence does not exist before this one fired */
#define ONE_OFF 1

#define NONE 0
#define OPEN 1
#define CLOSED 2
#define VOID 3

/* What SQL holds. */
byte state[7], from[7], to[7], owner[7];
byte newest = 0;
byte floor = 0, watermark = 0;
byte live[2], bucket[2], due[2];
byte fired = 0;
bit floor_held = 0;   /* the API's transaction holds the floor row FOR SHARE until it commits */

/* The database's clock, in buckets. */
byte now = 0;

/* Processes: dispatcher 0 founds the shard, 1 is its successor, 2 is the one of them that was killed, started again. */
bit alive[3], dead[3];
byte name_of[3];
byte kills = 1, splits = 1, false_alarms = 1, late_claims = 1;   /* how much of each may still come ... */
byte faults = FAULTS;                                           /* ... of kills, false alarms, late claims in all */

/* What each dispatcher believes: the terms that it takes for its own, as bits, and the term whose split it has not seen
 * yet, so that it takes the range for undivided. A wrong belief may cost a refused statement and nothing else. */
byte believed[3], unseen[3];

/* The statement that each dispatcher has on its way, and what it was built from: that may be long out of date when it
 * arrives. Rule 6: one writer for each dispatcher and shard. */
byte sent[3];                          /* FIRE, FOLLOW, CLAIM, or NOTHING */
byte s_term[3];
byte s_bucket[3], s_row[3], s_due[3];  /* FIRE: the due row, as it was read */
byte s_old[3], s_new[3];               /* FOLLOW: the watermark, and what the scan found; CLAIM: the watermark, and to */

#define NOTHING 0
#define FIRE 1
#define FOLLOW 2
#define CLAIM 3

#ifdef DEFECT_EXTEND_OLD_TERM_AGAIN
byte split_from = 0, split_into = 0;
#endif
#ifdef DEFECT_OPEN_IN_ANOTHER_TRANSACTION
byte half_claimed_by = 0, half_from = 0, half_to = 0;
#endif

#define BELIEVES(d, t) ((believed[d] >> (t)) & 1)
#define BELIEVED_TO(d, t) (unseen[d] == (t) -> END : to[t])
#define LIVE_AT(b) ((live[CHAIN] && bucket[CHAIN] == (b)) || (live[ONE_OFF] && bucket[ONE_OFF] == (b)))
#define OPEN_TERMS ((state[1] == OPEN) + (state[2] == OPEN) + (state[3] == OPEN) + (state[4] == OPEN) \
                    + (state[5] == OPEN) + (state[6] == OPEN))

/* The fence: the writer's own row, found by its key, FOR SHARE. */
#ifdef DEFECT_RESUME_TERM_AFTER_RESTART
#define IS_OWNER(d, t) (name_of[owner[t]] == name_of[d])
#else
#define IS_OWNER(d, t) (owner[t] == (d))
#endif
#ifdef DEFECT_NO_FENCE
#define HOLDS(d, t) (IS_OWNER(d, t))
#else
#define HOLDS(d, t) (IS_OWNER(d, t) && state[t] == OPEN)
#endif
#ifdef DEFECT_RANGE_TEST_INCLUDES_END
#define COVERS(t, b) (from[t] <= (b) && (b) <= to[t])
#else
#define COVERS(t, b) (from[t] <= (b) && (b) < to[t])
#endif
#ifdef DEFECT_FINISH_OUTSIDE_RANGE
#define MAY_RAISE(t, old, new) 1
#else
#define MAY_RAISE(t, old, new) (from[t] <= (old) && (new) <= to[t])
#endif

/* A step that dispatcher d may take under any term of which IS(d, t) holds: the term is chosen freely. */
#define SOME(IS, d) (IS(d, 1) || IS(d, 2) || IS(d, 3) || IS(d, 4) || IS(d, 5) || IS(d, 6))
#define CHOOSE(IS, d, t) \
  if \
  :: IS(d, 1) -> t = 1 \
  :: IS(d, 2) -> t = 2 \
  :: IS(d, 3) -> t = 3 \
  :: IS(d, 4) -> t = 4 \
  :: IS(d, 5) -> t = 5 \
  :: IS(d, 6) -> t = 6 \
  fi

/* What must hold of every write of a dispatcher when it commits, whatever the fence let pass. */
inline check_write(d, t, b) {
  assert(state[t] == OPEN);
  assert(owner[t] == d);
  assert(from[t] <= b && b < to[t])
}

/* The rows of the shard that are not void tile time: each bucket lies in exactly one. */
#define IN_TERM(t, b) (state[t] != NONE && state[t] != VOID && from[t] <= (b) && (b) < to[t])
#define TERMS_AT(b) (IN_TERM(1, b) + IN_TERM(2, b) + IN_TERM(3, b) + IN_TERM(4, b) + IN_TERM(5, b) + IN_TERM(6, b))
inline check_tiles() {
  assert(TERMS_AT(0) == 1 && TERMS_AT(1) == 1 && TERMS_AT(2) == 1 && TERMS_AT(3) == 1)
}

inline check_marks() {
  assert(watermark <= floor);
  assert(!live[CHAIN] || bucket[CHAIN] >= watermark);
  assert(!live[ONE_OFF] || bucket[ONE_OFF] >= watermark)
}

inline land(row, due_bucket, floor_read) {
  live[row] = 1;
  due[row] = due_bucket;
  bucket[row] = (due_bucket > floor_read -> due_bucket : floor_read);
  assert(bucket[row] >= floor);
  check_marks()
}

inline open_term(d, a, b) {
  newest++;
  assert(newest <= MAX_TERM);
  state[newest] = OPEN;
  from[newest] = a;
  to[newest] = b;
  owner[newest] = d;
  believed[d] = believed[d] | (1 << newest)
}

/* Rules 7 and 19: after a refusal the term is read again by its key. */
inline learn(d, t) {
  if
  :: state[t] != OPEN || !IS_OWNER(d, t) -> believed[d] = believed[d] & ~(1 << t)
  :: else -> skip
  fi;
  if
  :: unseen[d] == t -> unseen[d] = 0
  :: else -> skip
  fi
}

inline forget(d) {
  sent[d] = NOTHING; s_term[d] = 0; s_bucket[d] = 0; s_row[d] = 0; s_due[d] = 0; s_old[d] = 0; s_new[d] = 0
}

/* --- firing (rules 1, 2, 5) --- */

#define CAN_FIRE(d, row, t) (live[row] && due[row] <= now && bucket[row] >= watermark && BELIEVES(d, t) \
                             && from[t] <= bucket[row] && bucket[row] < BELIEVED_TO(d, t))
#define CAN_FIRE_CHAIN(d, t) CAN_FIRE(d, CHAIN, t)
#define CAN_FIRE_ONE_OFF(d, t) CAN_FIRE(d, ONE_OFF, t)

#define IS_THE_ROW(d) (live[s_row[d]] && bucket[s_row[d]] == s_bucket[d] && due[s_row[d]] == s_due[d])
#ifdef DEFECT_NEXT_OCCURRENCE_BELOW_FLOOR
#define FLOOR_FOR_NEXT 0
#else
#define FLOOR_FOR_NEXT floor
#endif

inline commit_fire(d) {
  if
  :: HOLDS(d, s_term[d]) && COVERS(s_term[d], s_bucket[d]) ->
       if
       :: IS_THE_ROW(d) ->
            check_write(d, s_term[d], s_bucket[d]);
            if
            :: s_row[d] == CHAIN ->
                 assert(!((fired >> s_due[d]) & 1));
                 fired = fired | (1 << s_due[d]);
                 if
                 :: s_due[d] == 0 -> land(CHAIN, 2, FLOOR_FOR_NEXT)
                 :: else -> live[CHAIN] = 0
                 fi
            :: else ->
                 assert(!((fired >> 4) & 1));
                 fired = fired | 16;
                 live[ONE_OFF] = 0
            fi
       :: else -> skip   /* somebody fired it before: nothing is written */
       fi
  :: else -> learn(d, s_term[d])
  fi;
  forget(d)
}

/* --- finishing a bucket (rule 3): raise the floor, commit; scan with a new snapshot; then the watermark follows --- */

#ifdef DEFECT_LANDING_WITHOUT_LOCK
#define FLOOR_IS_FREE 1
#else
#define FLOOR_IS_FREE (!floor_held)
#endif

#ifdef DEFECT_FINISH_OUTSIDE_RANGE
#define BELIEVES_MARK(d, t, mark) BELIEVES(d, t)
#define FIRST_SCANNED(t) (from[t] > watermark -> from[t] : watermark)
#else
#define BELIEVES_MARK(d, t, mark) (BELIEVES(d, t) && from[t] <= mark && mark < BELIEVED_TO(d, t))
#define FIRST_SCANNED(t) watermark
#endif

#define CAN_RAISE_FLOOR(d, t) (BELIEVES_MARK(d, t, floor))
inline raise_floor(d, t) {
  if
  :: HOLDS(d, t) && MAY_RAISE(t, floor, floor + 1) -> check_write(d, t, floor); floor++
  :: else -> learn(d, t)
  fi
}

#ifdef DEFECT_SCAN_BEFORE_FLOOR
#define SCANNED_TO now
#else
#define SCANNED_TO floor
#endif
inline lower_to(d, b) {
  if
  :: b < s_new[d] -> s_new[d] = b
  :: else -> skip
  fi
}
inline lower_to_row(d, row, t) {
  if
  :: live[row] && bucket[row] >= FIRST_SCANNED(t) -> lower_to(d, bucket[row])
  :: else -> skip
  fi
}

#define CAN_SCAN(d, t) (BELIEVES_MARK(d, t, watermark) && !LIVE_AT(FIRST_SCANNED(t)))
inline scan(d, t) {
  sent[d] = FOLLOW; s_term[d] = t; s_old[d] = watermark; s_new[d] = SCANNED_TO;
  lower_to(d, BELIEVED_TO(d, t)); lower_to_row(d, CHAIN, t); lower_to_row(d, ONE_OFF, t)
}

inline commit_watermark(d) {
#ifdef DEFECT_SCAN_BEFORE_FLOOR
  if
  :: HOLDS(d, s_term[d]) && floor < s_new[d] && floor >= from[s_term[d]] && s_new[d] <= to[s_term[d]] ->
       floor = s_new[d]
  :: else -> skip
  fi;
#endif
  if
  :: HOLDS(d, s_term[d]) && MAY_RAISE(s_term[d], s_old[d], s_new[d]) ->
       if
       :: watermark == s_old[d] && s_new[d] > s_old[d] && s_new[d] <= floor ->
            check_write(d, s_term[d], s_old[d]);
            watermark = s_new[d];
            check_marks()
       :: else -> skip
       fi
  :: else -> learn(d, s_term[d])
  fi;
  forget(d)
}

/* --- the planned hand-off (rules 16 to 18): one transaction ends the old term at B and opens the new one from B --- */

#ifdef DEFECT_BOUNDARY_OFF_BY_ONE
#define OPENS_AT(b) (b + 1)
#else
#define OPENS_AT(b) (b)
#endif
#define CAN_SPLIT(d, t) (state[t] == OPEN && owner[t] != d && from[t] < 2)
inline split(d, t, b) {
  splits--;
  unseen[owner[t]] = t;
  open_term(d, OPENS_AT(b), to[t]);
  to[t] = b;
#ifdef DEFECT_EXTEND_OLD_TERM_AGAIN
  split_from = t; split_into = newest;
#endif
  check_tiles()
}

/* Rule 12: the old term closes when nothing is left for it to do. Of its open runs the other model speaks. */
#define CAN_CLOSE(d, t) (state[t] == OPEN && to[t] < END && watermark >= to[t])

/* --- takeover (rules 5, 16, 17): of the dead, of one that was suspected wrongly, of one that does not drain in time ---
 *
 * The statement's snapshot, which gives the watermark, is older than the moment at which it gets the term row: whoever
 * holds that row FOR SHARE commits in between. */

#define OWNS_NEXT(d, s, t) (BELIEVES(d, s) && from[s] == to[t])
#define IS_LATE(d, t) (late_claims > 0 && faults > 0 && to[t] < END && now > to[t] \
  && (OWNS_NEXT(d, 2, t) || OWNS_NEXT(d, 3, t) || OWNS_NEXT(d, 4, t) || OWNS_NEXT(d, 5, t) || OWNS_NEXT(d, 6, t)))
#define SUSPECTS(d, t) (dead[owner[t]] || (false_alarms > 0 && faults > 0) || IS_LATE(d, t))
#define CAN_CLAIM(d, t) (state[t] == OPEN && owner[t] != d && watermark < to[t] && SUSPECTS(d, t))
inline prepare_claim(d, t) {
  if
  :: dead[owner[t]] -> skip
  :: !dead[owner[t]] && IS_LATE(d, t) -> late_claims--; faults--
  :: !dead[owner[t]] && !IS_LATE(d, t) -> false_alarms--; faults--
  fi;
  sent[d] = CLAIM; s_term[d] = t; s_old[d] = watermark; s_new[d] = to[t]
}

#ifdef DEFECT_CLAIM_NAMES_NO_ROW
#define IS_NAMED_ROW(d) (state[s_term[d]] == OPEN)
#else
#define IS_NAMED_ROW(d) (state[s_term[d]] == OPEN && to[s_term[d]] == s_new[d])
#endif
#ifdef DEFECT_WATERMARK_READ_BEFORE_CLOSING
#define CLOSES_AT(d) watermark   /* one reading for the new term, another for the old one */
#else
#define CLOSES_AT(d) s_old[d]
#endif

inline commit_claim(d) {
  if
  :: IS_NAMED_ROW(d) && CLOSES_AT(d) < to[s_term[d]] ->
       if
       :: CLOSES_AT(d) > from[s_term[d]] -> state[s_term[d]] = CLOSED; to[s_term[d]] = CLOSES_AT(d)
       :: else -> state[s_term[d]] = VOID; s_old[d] = from[s_term[d]]
       fi;
#ifdef DEFECT_OPEN_IN_ANOTHER_TRANSACTION
       half_claimed_by = d + 1; half_from = s_old[d]; half_to = s_new[d];
       check_tiles()
  :: else -> skip
  fi;
#else
       open_term(d, s_old[d], s_new[d]);
       check_tiles()
  :: else -> skip   /* it is no longer the row that was named */
  fi;
#endif
  forget(d)
}

/* No more statements than UNDER_WAY are on their way at a time; any further one arrives at once. */
#define ON_THEIR_WAY ((sent[0] != NOTHING) + (sent[1] != NOTHING) + (sent[2] != NOTHING))
#define AT_ONCE(COMMIT) \
  if \
  :: ON_THEIR_WAY > UNDER_WAY -> COMMIT \
  :: else -> skip \
  fi

proctype dispatcher(byte me) {
  byte t, b;
  do
  :: atomic { alive[me] && sent[me] == NOTHING && SOME(CAN_FIRE_CHAIN, me) ->
       CHOOSE(CAN_FIRE_CHAIN, me, t);
       sent[me] = FIRE; s_term[me] = t; s_row[me] = CHAIN; s_bucket[me] = bucket[CHAIN]; s_due[me] = due[CHAIN]; t = 0;
       AT_ONCE(commit_fire(me)) }
  :: atomic { alive[me] && sent[me] == NOTHING && SOME(CAN_FIRE_ONE_OFF, me) ->
       CHOOSE(CAN_FIRE_ONE_OFF, me, t);
       sent[me] = FIRE; s_term[me] = t; s_row[me] = ONE_OFF; s_bucket[me] = bucket[ONE_OFF]; s_due[me] = due[ONE_OFF]; t = 0;
       AT_ONCE(commit_fire(me)) }
  :: atomic { alive[me] && floor < now && FLOOR_IS_FREE && SOME(CAN_RAISE_FLOOR, me) ->
       CHOOSE(CAN_RAISE_FLOOR, me, t);
       raise_floor(me, t); t = 0 }
  :: atomic { alive[me] && sent[me] == NOTHING && watermark < SCANNED_TO && SOME(CAN_SCAN, me) ->
       CHOOSE(CAN_SCAN, me, t);
       scan(me, t); t = 0;
       AT_ONCE(commit_watermark(me)) }
  :: atomic { alive[me] && splits > 0 && OPEN_TERMS == 1 && SOME(CAN_SPLIT, me) ->
       CHOOSE(CAN_SPLIT, me, t);
       if
       :: from[t] < 1 -> b = 1
       :: b = 2
       fi;
       split(me, t, b); t = 0; b = 0 }
  :: atomic { alive[me] && SOME(CAN_CLOSE, me) ->
       CHOOSE(CAN_CLOSE, me, t);
       state[t] = CLOSED; t = 0 }
  :: atomic { alive[me] && sent[me] == NOTHING && SOME(CAN_CLAIM, me) ->
       CHOOSE(CAN_CLAIM, me, t);
       prepare_claim(me, t); t = 0;
       AT_ONCE(commit_claim(me)) }
  /* A statement that was sent arrives, now or much later, and even after its sender's death ... */
  :: atomic { sent[me] == FIRE -> commit_fire(me) }
  :: atomic { sent[me] == FOLLOW -> commit_watermark(me) }
  :: atomic { sent[me] == CLAIM -> commit_claim(me) }
  /* ... or never. */
  :: atomic { dead[me] && sent[me] != NOTHING -> forget(me) }
  :: atomic { alive[me] && me < 2 && kills > 0 && faults > 0 ->
       kills--; faults--;
       alive[me] = 0; dead[me] = 1;
       alive[2] = 1; name_of[2] = name_of[me];
#ifdef DEFECT_RESUME_TERM_AFTER_RESTART
       believed[2] = believed[me];
#endif
       believed[me] = 0; unseen[me] = 0 }
#ifdef DEFECT_EXTEND_OLD_TERM_AGAIN
  /* The successor died before B: the old owner takes its range back, as far as it remembers the successor's term. */
  :: atomic { alive[me] && split_from != 0 && owner[split_from] == me && state[split_from] == OPEN &&
       now < to[split_from] && dead[owner[split_into]] ->
       if
       :: state[split_into] == OPEN -> state[split_into] = VOID
       :: else -> skip
       fi;
       to[split_from] = END;
       split_from = 0;
       check_tiles() }
#endif
#ifdef DEFECT_OPEN_IN_ANOTHER_TRANSACTION
  :: atomic { half_claimed_by == me + 1 && alive[me] ->
       half_claimed_by = 0;
       open_term(me, half_from, half_to);
       check_tiles() }
#endif
  od
}

/* A transaction of the API: it locks the floor, lands its row there, and commits a while later (rule 2). */
proctype api() {
  byte due_bucket, floor_read;
  if
  :: due_bucket = 0   /* late, or at once: it lands at the floor */
  :: due_bucket = 2
  fi;
  atomic { floor_read = floor; floor_held = 1 }
  atomic {
#ifdef DEFECT_LANDING_WITHOUT_FLOOR
    floor_read = 0;
#endif
    land(ONE_OFF, due_bucket, floor_read);
    floor_held = 0
  }
}

proctype database_clock() {
  do
  :: now < LAST -> now++
  :: else -> break
  od
}

/* Progress: when nobody has anything left to do, everything has been fired and every bucket is finished. */
proctype observer() {
  timeout;
  assert(now == LAST);
  assert(fired == ALL_RUNS);
  assert(floor == LAST && watermark == LAST)
}

init {
  atomic {
    name_of[1] = 1; alive[0] = 1; alive[1] = 1;
    open_term(0, 0, END);
    live[CHAIN] = 1;
    run dispatcher(0); run dispatcher(1); run dispatcher(2);
    run api(); run database_clock(); run observer()
  }
}

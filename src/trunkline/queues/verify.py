"""Whether a site's queues are as they must be: every rule is one query that finds what breaks it.

All rules see one snapshot, so a site may be looked at while it works. One thing is outside of any snapshot: a slot that was
emptied meanwhile looks empty to an older one. So what is said of the log is said again only of entries that were not trimmed
by the end of the look (`lowest`), and of a receive queue only of positions that its consumers had not all passed by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
from psycopg import IsolationLevel


class Finding(msgspec.Struct, frozen=True):
    rule: str
    what: str
    why: str


# Each gives: what it is about, why it is wrong, and the seq of the log it hangs on (0: on none).
_LOG_RULES: Mapping[str, str] = {
    "the log is dense": """
        SELECT format('round %s-%s', first_seq, last_seq), format('the one before it ends with %s', before), last_seq
          FROM (SELECT first_seq, last_seq, lag(last_seq) OVER (ORDER BY first_seq) AS before FROM queues.stamp) s
         WHERE first_seq <> before + 1 OR last_seq < first_seq""",
    "the log begins after what was trimmed": """
        SELECT format('round %s-%s', first_seq, last_seq), format('trimmed up to %s', lowest), last_seq
          FROM (SELECT first_seq, last_seq FROM queues.stamp ORDER BY first_seq LIMIT 1) s, queues.stamper
         WHERE first_seq > lowest + 1""",
    "a round counts what it has": """
        SELECT format('round %s-%s', first_seq, last_seq), format('its transactions have %s entries', entries), last_seq
          FROM (SELECT *, (SELECT coalesce(sum(n), 0) FROM unnest(counts) AS n) AS entries FROM queues.stamp) s
         WHERE entries <> last_seq - first_seq + 1 OR cardinality(xids) <> cardinality(counts)""",
    "every stamped transaction has its rows": """
        SELECT format('transaction %s in round %s-%s', x.xid, s.first_seq, s.last_seq),
               format('%s entries are stamped, %s are there', x.n, l.n), s.last_seq
          FROM queues.stamp s, unnest(s.xids, s.counts) AS x(xid, n),
               LATERAL (SELECT count(*) AS n FROM queues.sent_message l WHERE l.xid = x.xid) l
         WHERE l.n <> x.n AND s.last_seq > (SELECT lowest FROM queues.stamper)""",
    "a transaction is stamped once": """
        SELECT format('transaction %s', xid), format('it is stamped %s times', count(*)), max(last_seq)
          FROM queues.stamp, unnest(xids) AS xid GROUP BY xid HAVING count(*) > 1""",
    "no ticket is passed over": """
        SELECT format('ticket %s of transaction %s', t.ticket, t.xid), 'the stamper is behind it and did not stamp it', 0
          FROM queues.ticket t, (SELECT cursor, holes FROM queues.stamp ORDER BY last_seq DESC LIMIT 1) s
         WHERE t.ticket <= s.cursor AND t.ticket <> ALL (s.holes)
           AND EXISTS (SELECT FROM queues.send_log l WHERE l.xid = t.xid)
           AND NOT EXISTS (SELECT FROM queues.stamp p WHERE t.xid = ANY (p.xids))""",
    "what was trimmed lies in the log": """
        SELECT 'the log', format('trimmed up to %s, and it ends with %s', lowest, head), 0
          FROM queues.stamper, (SELECT max(last_seq) AS head FROM queues.stamp) s WHERE lowest > head""",
    "a set of destinations is kept once": """
        SELECT format('sets %s', array_agg(id ORDER BY id)), format('they all are %s', sites), 0
          FROM queues.destination_set GROUP BY sites HAVING count(*) > 1""",
    "a set of destinations is sorted and has each once": """
        SELECT format('set %s', id), format('it is %s', sites), 0 FROM queues.destination_set
         WHERE sites <> ARRAY(SELECT DISTINCT s COLLATE "C" FROM unnest(sites) AS s ORDER BY 1)""",
    "every set that is named exists": """
        SELECT format('set %s in round %s-%s', b.set, s.first_seq, s.last_seq), 'there is no such set', s.last_seq
          FROM queues.stamp s, unnest(s.sets) AS b(set)
         WHERE NOT EXISTS (SELECT FROM queues.destination_set d WHERE d.id = b.set)""",
    "acknowledgements lie in the log": """
        SELECT format('site %s, client %s', destination, client), format('it has %s, and the log ends with %s', seq, head), 0
          FROM queues.acknowledged, (SELECT coalesce(max(last_seq), 0) AS head FROM queues.stamp) s WHERE seq > head""",
    "open requests are kept their entries": """
        SELECT format('snapshot %s of client %s', id, client), format('base %s, trimmed up to %s', base, lowest), 0
          FROM queues.request, queues.stamper WHERE state IN ('ready', 'providing', 'complete') AND base < lowest""",
    "a snapshot's chunks are dense": """
        SELECT format('snapshot %s of client %s', r.id, r.client),
               format('%s chunks are counted, %s are there', r.chunks, count(s.chunk)), 0
          FROM queues.request r LEFT JOIN queues.send_snapshot s ON s.request = r.id
         WHERE r.state IN ('providing', 'complete')
         GROUP BY r.id HAVING count(s.chunk) <> r.chunks OR coalesce(max(s.chunk) + 1, 0) <> r.chunks""",
}

# The same, with the queue's id and the position it hangs on.
_QUEUE_RULES: Mapping[str, str] = {
    "positions are dense": """
        SELECT format('queue %s', q.name), format('after %s it has %s entries, %s to %s, and its head is %s',
                      q.tail, r.n, r.first, r.last, q.head), q.id, q.tail + 1
          FROM queues.queue q, LATERAL (SELECT count(*) AS n, min(position) AS first, max(position) AS last
                 FROM queues.receive r WHERE r.queue = q.id AND r.position > q.tail) r
         WHERE r.n <> q.head - q.tail OR (r.n > 0 AND (r.first, r.last) <> (q.tail + 1, q.head))""",
    "no position is there twice": """
        SELECT format('queue %s', q.name), format('position %s is there %s times', r.position, count(*)), q.id, r.position
          FROM queues.receive r JOIN queues.queue q ON q.id = r.queue
         GROUP BY q.id, r.position HAVING count(*) > 1""",
    "heads, tails and bytes are in order": """
        SELECT format('queue %s', name), format('tail %s, head %s, %s of %s bytes passed', tail, head, passed_bytes,
                      received_bytes), id, 0
          FROM queues.queue WHERE tail > head OR passed_bytes > received_bytes OR tail < 0""",
    "bytes are counted": """
        SELECT format('queue %s', q.name), format('%s bytes at its head %s, and it counts %s', r.total, q.head,
                      q.received_bytes), q.id, q.head
          FROM queues.queue q JOIN queues.receive r ON (r.queue, r.position) = (q.id, q.head)
         WHERE r.total <> q.received_bytes""",
    "every record is of a known kind": """
        SELECT format('queue %s, position %s', q.name, r.position), format('kind %s', r.type), q.id, r.position
          FROM queues.receive r JOIN queues.queue q ON q.id = r.queue WHERE r.type NOT BETWEEN 1 AND 5""",
    "no consumer is ahead of its queue": """
        SELECT format('consumer %s of client %s', c.consumer, c.client), format('at %s of %s, whose head is %s', c.position,
                      q.name, q.head), 0, 0
          FROM queues.consumed c JOIN queues.queue q ON q.id = c.queue WHERE c.position > q.head""",
    "nothing is gone that a consumer still needs": """
        SELECT format('consumer %s of client %s', c.name, c.client), format('at %s of %s, whose tail is %s',
                      coalesce(d.position, 0), q.name, q.tail), 0, 0
          FROM queues.consumer c JOIN queues.queue q ON q.client = c.client
          LEFT JOIN queues.consumed d ON (d.client, d.consumer, d.queue) = (c.client, c.name, q.id)
         WHERE c.detached_at IS NULL AND coalesce(d.position, 0) < q.tail""",
    "the sessions of an origin are of one log": """
        SELECT format('origin %s', origin), format('its sessions are of the logs %s', array_agg(DISTINCT log_id)), 0, 0
          FROM queues.session WHERE log_id <> '' GROUP BY origin HAVING count(DISTINCT log_id) > 1""",
    "a session has what its state needs": """
        SELECT format('session with %s of client %s', origin, client), format('state %s, log %L, request %s, base %s', state,
                      log_id, coalesce(request::text, 'none'), coalesce(base::text, 'none')), 0, 0
          FROM queues.session
         WHERE client <> '' AND ((state = 'log' AND log_id = '') OR (state = 'snapshot' AND num_nulls(request, base) > 0))""",
}
RULES = (*_LOG_RULES, *_QUEUE_RULES)


Rows = list[tuple[Any, ...]]


def verify(conn: psycopg.Connection[Any]) -> list[Finding]:
    """What is wrong, nothing if all is well. On a connection that is in no transaction; a long look at long queues."""
    conn.isolation_level, conn.read_only = IsolationLevel.REPEATABLE_READ, True
    with conn.transaction():
        of_log, of_queues = _broken(conn, _LOG_RULES), _broken(conn, _QUEUE_RULES)
    with conn.transaction():
        return _standing(conn, of_log, of_queues)


def look(conn: psycopg.Connection[Any]) -> list[Finding]:
    """The same in the caller's transaction."""
    return _standing(conn, _broken(conn, _LOG_RULES), _broken(conn, _QUEUE_RULES))


def _broken(conn: psycopg.Connection[Any], rules: Mapping[str, str]) -> Rows:
    return [(rule, *row) for rule, query in rules.items() for row in conn.execute(query.encode())]


def _standing(conn: psycopg.Connection[Any], of_log: Rows, of_queues: Rows) -> list[Finding]:
    """Without what may only have looked so because it was let go meanwhile."""
    (lowest,) = conn.execute("SELECT lowest FROM queues.stamper").fetchone() or (0,)
    tails: dict[int, int] = dict(conn.execute("SELECT id, tail FROM queues.queue").fetchall())
    found = [Finding(rule, what, why) for rule, what, why, seq in of_log if not seq or seq > lowest]
    kept = [row for row in of_queues if not row[4] or row[4] > tails.get(row[3], 0)]
    return found + [Finding(rule, what, why) for rule, what, why, _, _ in kept]

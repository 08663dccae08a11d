/** Rows whose change of state must be in the log, with the states that are none. */
const guarded = {
  sandboxes: { state: 'status', silent: 'creating' },
  checkpoints: { state: 'status', silent: 'processing' },
  images: { state: 'status', silent: 'building' },
  sessions: { state: 'activity', silent: '' },
} as const
const madeAndDeleted = ['images', 'volumes', 'volume_snapshots', 'sessions', 'api_keys'] as const

const check = `create function assert_logged() returns trigger language plpgsql as $$
  declare
    changed record;
  begin
    changed := case when tg_op = 'DELETE' then old else new end;
    if not exists (
      select from events
      where org_id = changed.org_id and subject = changed.id and xmin::text::bigint = txid_current() % 4294967296
    ) then
      raise exception 'the log has no event of % of % in this transaction', tg_op, changed.id;
    end if;
    return null;
  end
$$`

const triggers = [
  ...Object.entries(guarded).map(([table, { state, silent }]) =>
    trigger(table, `update of ${state}`, `old.${state} is distinct from new.${state} and new.${state} <> '${silent}'`),
  ),
  trigger('sandboxes', 'insert', `new.status <> '${guarded.sandboxes.silent}'`),
  trigger('checkpoints', 'insert', `new.status <> '${guarded.checkpoints.silent}'`),
  trigger('checkpoints', 'delete', 'true'),
  trigger('images', 'update of is_public', 'old.is_public is distinct from new.is_public'),
  ...madeAndDeleted.flatMap((table) => [trigger(table, 'insert', 'true'), trigger(table, 'delete', 'true')]),
]

/**
 * Makes a database refuse each commit that changes a state without an event of it: whatever test runs on it shows that no path forgets
 * the log.
 */
export const logGuard = [check, ...triggers].join(';')

function trigger(table: string, when: string, condition: string): string {
  const name = `logged_${when.replaceAll(' ', '_')}`
  return `create constraint trigger ${name} after ${when} on ${table}
    deferrable initially deferred for each row when (${condition}) execute function assert_logged()`
}

/**
 * The SQL of every migration, by name and in order. A released migration never changes: the next change is a new entry at the end.
 * A migration that needs code, such as a backfill, is a `Migration` of its own in `index.ts`.
 */
export const migrationStatements = {
  // Identifiers collate by bytes, because cursors compare them: the order must not depend on the locale of the server. Times carry
  // milliseconds, as JavaScript's dates do, so a value reads as it was written.
  '0001-release-0.1.0': [
    // The data directory that the database belongs to. Records name it in `host_id`; one made before it is known has none.
    `create table installation (
      is_only boolean primary key default true constraint installation_is_only check (is_only),
      id text collate "C" not null
    )`,

    `create table organisations (
      id text collate "C" primary key,
      name text not null,
      is_default boolean not null default false,
      created_at timestamptz(3) not null default now()
    )`,
    `create unique index organisations_default on organisations (is_default) where is_default`,

    `create table api_keys (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      key_hash text collate "C" not null constraint api_keys_key_hash unique,
      created_at timestamptz(3) not null
    )`,
    `create index api_keys_org on api_keys (org_id)`,

    `create table sandboxes (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      status text not null,
      reason text,
      reason_message text,
      image text not null,
      cpu_count double precision not null,
      memory_mb integer not null,
      disk_mb integer not null,
      timeout_seconds integer not null,
      envs jsonb not null,
      metadata jsonb not null,
      tags jsonb not null,
      tags_updated_at timestamptz(3),
      from_checkpoint_id text collate "C",
      preview_token_hash text,
      host_id text collate "C",
      restores integer not null default 0,
      volumes jsonb not null default '[]',
      command_defaults jsonb,
      is_autoscaled boolean not null default false,
      autoscale_min_mb integer not null default 0,
      autoscale_max_mb integer not null default 0,
      is_scaling_locked boolean not null default false,
      created_at timestamptz(3) not null,
      started_at timestamptz(3) not null,
      active_at timestamptz(3) not null,
      stopped_at timestamptz(3)
    )`,
    `create index sandboxes_list on sandboxes (org_id, created_at desc, id desc)`,
    `create index sandboxes_status on sandboxes (status)`,

    // No reference to the sandbox: a checkpoint outlives it.
    `create table checkpoints (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      owner text not null,
      sandbox_id text collate "C" not null,
      name text not null,
      kind text not null,
      status text not null,
      size_bytes bigint not null,
      sandbox_config jsonb not null,
      error text,
      last_patch_sequence integer not null default 0,
      host_id text collate "C",
      is_public boolean not null default false,
      volumes jsonb not null default '[]',
      created_at timestamptz(3) not null,
      constraint checkpoints_name unique (sandbox_id, name)
    )`,
    `create index checkpoints_org on checkpoints (org_id)`,
    // Checkpoints whose data the driver may still hold.
    'create table deleted_checkpoints (id text collate "C" primary key)',

    `create table patches (
      id text collate "C" primary key,
      checkpoint_id text collate "C" not null references checkpoints on delete cascade,
      script text not null,
      description text not null,
      strategy text not null,
      sequence integer not null,
      created_at timestamptz(3) not null,
      constraint patches_sequence unique (checkpoint_id, sequence)
    )`,

    // A domain is served once its owner has proved it; until then any number of organisations may claim it.
    `create table previews (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      sandbox_id text collate "C" not null constraint previews_sandbox references sandboxes on delete cascade,
      port integer not null,
      custom_hostname text collate "C",
      verified_at timestamptz(3),
      ssl_status text not null,
      auth_scheme text,
      token_hash text,
      created_at timestamptz(3) not null,
      constraint previews_port unique (sandbox_id, port),
      constraint previews_own_hostname unique (org_id, custom_hostname)
    )`,
    'create unique index previews_verified_hostname on previews (custom_hostname) where verified_at is not null',
    `create index previews_unverified on previews (org_id, created_at)
      where custom_hostname is not null and verified_at is null`,

    `create table agent_configs (
      hash text collate "C" primary key,
      config jsonb not null,
      skills jsonb not null
    )`,

    // No reference to the sandbox: the session's row comes before it and stays after it. The server counts the bytes of the history
    // and of the stream. The cost is null once a call of unknown price is in it.
    `create table sessions (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      user_id text not null,
      user_email text,
      user_name text,
      status text not null,
      activity text not null,
      sandbox_id text collate "C" not null,
      title text not null,
      framework text not null,
      artifacts jsonb not null,
      agent_config_hash text collate "C" not null references agent_configs,
      checkpoint_id text collate "C",
      gateway_token_hash text collate "C" not null constraint sessions_gateway_token unique,
      agent_process_id text,
      agent_offset bigint not null,
      input_tokens bigint not null,
      output_tokens bigint not null,
      cache_read_tokens bigint not null default 0,
      cache_write_tokens bigint not null default 0,
      cost_nano_usd bigint,
      last_sequence integer not null default 0,
      stream_bytes bigint not null default 0,
      history_bytes bigint not null default 0,
      interrupted_message_id text collate "C",
      waiting_for text collate "C",
      waiting_since timestamptz(3),
      sandbox_restores integer not null default 0,
      forked_from text collate "C",
      fork_checkpoint_of text collate "C",
      host_id text collate "C",
      created_at timestamptz(3) not null,
      updated_at timestamptz(3) not null
    )`,
    `create index sessions_list on sessions (org_id, created_at desc, id desc)`,
    `create index sessions_user on sessions (org_id, user_id, created_at desc, id desc)`,
    `create index sessions_sandbox on sessions (sandbox_id)`,
    `create index sessions_running on sessions (created_at) where status = 'running'`,
    // Not by `updated_at`, which each commit changes: PostgreSQL would then update all indexes of the row.
    `create index sessions_ended on sessions (created_at) where status = 'ended'`,
    'create index sessions_agent_config on sessions (agent_config_hash)',

    `create table messages (
      position bigint generated always as identity,
      id text collate "C" primary key,
      session_id text collate "C" not null references sessions on delete cascade,
      role text not null,
      content text not null,
      state text,
      created_at timestamptz(3) not null
    )`,
    `create unique index messages_order on messages (session_id, position)`,
    'create index messages_state on messages (session_id, state, position)',

    `create table session_events (
      position bigint generated always as identity,
      id text collate "C" primary key,
      session_id text collate "C" not null references sessions on delete cascade,
      type text not null,
      level text not null,
      message text not null,
      created_at timestamptz(3) not null
    )`,
    `create unique index session_events_order on session_events (session_id, position)`,

    // json, not jsonb: nothing looks inside, and json keeps the order of keys for a replay.
    `create table stream_events (
      session_id text collate "C" not null references sessions on delete cascade,
      sequence integer not null,
      data json not null,
      created_at timestamptz(3) not null,
      primary key (session_id, sequence)
    )`,

    // `made`: the ids of what the request has created.
    `create table idempotency_keys (
      org_id text collate "C" not null references organisations,
      key text collate "C" not null,
      request_hash text not null,
      status_code integer,
      body text,
      headers jsonb,
      seed text not null,
      made text[] not null default '{}',
      created_at timestamptz(3) not null,
      primary key (org_id, key)
    )`,
    `create index idempotency_keys_age on idempotency_keys (created_at)`,

    // The claims of organisations to built contents, and the checkpoints after each step, from which later builds go on.
    `create table images (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations (id),
      name text collate "C",
      content_hash text collate "C" not null,
      layer_hashes text[] not null,
      checkpoint_id text collate "C",
      status text collate "C" not null,
      manifest jsonb not null,
      memory_mb integer not null,
      is_detached boolean not null,
      is_public boolean not null,
      failure jsonb,
      oci jsonb,
      created_at timestamptz(3) not null,
      last_used_at timestamptz(3) not null
    )`,
    'create unique index images_name on images (org_id, name) where name is not null',
    'create index images_content on images (org_id, content_hash)',
    `create table image_layers (
      org_id text collate "C" not null references organisations (id),
      hash text collate "C" not null,
      checkpoint_id text collate "C" not null,
      primary key (org_id, hash)
    )`,

    // The index on writers prevents a second writer.
    `create table volumes (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      host_id text collate "C",
      name text collate "C" not null,
      size_mb integer not null,
      source text,
      created_at timestamptz(3) not null,
      constraint volumes_name unique (org_id, name)
    )`,
    `create table volume_snapshots (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      volume_id text collate "C" not null constraint volume_snapshots_volume references volumes,
      name text collate "C" not null,
      size_mb integer not null,
      created_at timestamptz(3) not null,
      constraint volume_snapshots_name unique (volume_id, name)
    )`,
    `create table volume_attachments (
      sandbox_id text collate "C" not null references sandboxes on delete cascade,
      volume_id text collate "C" not null constraint volume_attachments_volume references volumes,
      path text not null,
      read_only boolean not null,
      primary key (sandbox_id, volume_id)
    )`,
    'create index volume_attachments_of on volume_attachments (volume_id)',
    'create unique index volume_attachments_writer on volume_attachments (volume_id) where not read_only',
    'create table volume_remains (id text collate "C" primary key)',

    // The log, numbered by organisation. No index has the counter, so its updates stay in their page.
    `create table event_counters (
      org_id text collate "C" primary key references organisations,
      last_number bigint not null
    ) with (fillfactor = 20)`,
    `create table events (
      org_id text collate "C" not null references organisations,
      number bigint not null,
      ts timestamptz(3) not null,
      type text collate "C" not null,
      subject text collate "C" not null,
      sandbox_id text collate "C",
      session_id text collate "C",
      actor_type text collate "C" not null,
      actor_id text collate "C",
      cause text collate "C" not null,
      tags jsonb,
      data jsonb not null,
      primary key (org_id, number)
    )`,
  ],

  // What ends sandboxes and checkpoints. The index leaves out `status`, so that a change of state need not write it.
  '0002-lifetimes': [
    `alter table sandboxes
      add column on_idle text not null default 'hibernate',
      add column expires_at timestamptz(3)`,
    'create index sandboxes_expiring on sandboxes (expires_at) where expires_at is not null',
    'alter table checkpoints add column expires_at timestamptz(3)',
    'create index checkpoints_expiring on checkpoints (expires_at) where expires_at is not null',
    'create index sandboxes_from_checkpoint on sandboxes (from_checkpoint_id) where from_checkpoint_id is not null',
    'create index checkpoints_list on checkpoints (org_id, created_at desc, id desc)',
    'drop index checkpoints_org',
  ],

  // A name is unique while what has it lives, and free afterwards. The filters of lists look into maps by an index; one of rows that have a
  // map alone, since most have none.
  '0003-names': [
    'alter table sandboxes add column name text collate "C"',
    `create unique index sandboxes_name on sandboxes (org_id, name) where name is not null and status <> 'stopped'`,
    `create index sandboxes_metadata on sandboxes using gin (metadata jsonb_path_ops) where metadata <> '{}'`,
    `create index sandboxes_tags on sandboxes using gin (tags) where tags <> '{}'`,
    'alter table sessions add column name text collate "C"',
    `create unique index sessions_name on sessions (org_id, name) where name is not null and status = 'running'`,
  ],

  // What clients read of an image without its being in force (`config`), and the name that a build takes from another image when it ends well.
  // Passwords of registries are sealed (`lib/sealed.ts`).
  '0004-images': [
    'alter table images add column config jsonb, add column replaces text collate "C"',
    `create table registry_credentials (
      org_id text collate "C" not null references organisations,
      host text collate "C" not null,
      username text not null,
      sealed_password text collate "C" not null,
      updated_at timestamptz(3) not null,
      primary key (org_id, host)
    )`,
  ],

  // Organisations that an operator makes, and keys that may do a part. `scopes` of null: all of them. `key_id`: of the key that has made it.
  '0005-organisations': [
    `alter table organisations
      add column limits jsonb not null default '{}',
      add column suspended_at timestamptz(3),
      add column suspended_reason text,
      add column deleting_at timestamptz(3)`,
    `alter table api_keys
      add column key_prefix text,
      add column name text not null default '',
      add column scopes text[],
      add column expires_at timestamptz(3),
      add column last_used_at timestamptz(3),
      add column name_prefix text collate "C",
      add column sandboxes_max integer,
      add column made_by text collate "C",
      add column is_default boolean not null default false`,
    // All keys before this were made or configured by a start.
    'update api_keys set is_default = true',
    'create index api_keys_made_by on api_keys (made_by) where made_by is not null',
    'create table operator_keys (key_hash text collate "C" primary key, created_at timestamptz(3) not null default now())',
    'alter table sandboxes add column key_id text collate "C"',
    `create index sandboxes_key on sandboxes (key_id) where key_id is not null and status <> 'stopped'`,
    'alter table sessions add column key_id text collate "C"',
  ],

  // What each sandbox and session has used, and when.
  '0006-usage': [
    // What each sandbox was allowed, and when: a row for each time that it ran with one size. Triggers write it, so that no change is without
    // it. A time is never before the one that was written last, whatever the clock does: no second counts twice.
    `create table usage_spans (
      id bigint generated always as identity primary key,
      org_id text collate "C" not null references organisations,
      sandbox_id text collate "C" not null,
      started_at timestamptz(3) not null,
      ended_at timestamptz(3),
      memory_mb integer not null,
      cpu_count double precision not null,
      disk_mb integer not null
    )`,
    'create unique index usage_spans_open on usage_spans (sandbox_id) where ended_at is null',
    'create index usage_spans_org on usage_spans (org_id, ended_at)',
    'create index usage_spans_sandbox on usage_spans (sandbox_id, started_at)',
    // What is told of a sandbox whose record is gone.
    `create table usage_sandboxes (
      sandbox_id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      key_id text collate "C",
      name text collate "C",
      status text collate "C" not null,
      tags jsonb not null,
      tags_updated_at timestamptz(3),
      created_at timestamptz(3) not null
    )`,
    'create index usage_sandboxes_org on usage_sandboxes (org_id)',
    `create table usage_minutes (
      sandbox_id text collate "C" not null,
      minute timestamptz(0) not null,
      org_id text collate "C" not null references organisations,
      memory_mb_seconds double precision not null default 0,
      measured_seconds double precision not null default 0,
      memory_peak_mb integer not null default 0,
      cpu_us bigint not null default 0,
      sent_bytes bigint not null default 0,
      received_bytes bigint not null default 0,
      primary key (sandbox_id, minute)
    )`,
    'create index usage_minutes_org on usage_minutes (org_id, minute)',
    // The counters of a running machine as they were counted last.
    `create table usage_readings (
      sandbox_id text collate "C" primary key,
      epoch timestamptz(3) not null,
      read_at timestamptz(3) not null,
      cpu_us bigint not null,
      sent_bytes bigint not null,
      received_bytes bigint not null
    )`,
    `create table usage_models (
      session_id text collate "C" not null,
      hour timestamptz(0) not null,
      org_id text collate "C" not null references organisations,
      key_id text collate "C",
      model text not null,
      input_tokens bigint not null default 0,
      output_tokens bigint not null default 0,
      cache_read_tokens bigint not null default 0,
      cache_write_tokens bigint not null default 0,
      cost_nano_usd bigint not null default 0,
      is_cost_known boolean not null default true,
      primary key (session_id, hour)
    )`,
    'create index usage_models_org on usage_models (org_id, hour)',
    // What was told of a month's budget: 80 for the warning, 100 for its end.
    `create table usage_budgets (
      org_id text collate "C" not null references organisations,
      month date not null,
      told integer not null,
      primary key (org_id, month)
    )`,
    `create function usage_of_sandbox() returns trigger language plpgsql as $$
      declare
        present timestamptz(3) := clock_timestamp();
        last timestamptz(3);
      begin
        insert into usage_sandboxes (sandbox_id, org_id, key_id, name, status, tags, tags_updated_at, created_at)
          values (new.id, new.org_id, new.key_id, new.name, new.status, new.tags, new.tags_updated_at, new.created_at)
          on conflict (sandbox_id) do update set name = excluded.name, status = excluded.status, tags = excluded.tags,
            tags_updated_at = excluded.tags_updated_at;
        if tg_op = 'UPDATE' and old.status = 'running' and new.status = 'running' and old.memory_mb = new.memory_mb
            and old.cpu_count = new.cpu_count and old.disk_mb = new.disk_mb then
          return null;
        end if;
        update usage_spans set ended_at = greatest(started_at, present) where sandbox_id = new.id and ended_at is null;
        if new.status <> 'running' then
          return null;
        end if;
        select max(ended_at) into last from usage_spans where sandbox_id = new.id;
        insert into usage_spans (org_id, sandbox_id, started_at, memory_mb, cpu_count, disk_mb)
          values (new.org_id, new.id, greatest(present, last), new.memory_mb, new.cpu_count, new.disk_mb);
        return null;
      end
    $$`,
    `create trigger usage_of_new_sandbox after insert on sandboxes for each row execute function usage_of_sandbox()`,
    `create trigger usage_of_sandbox after update of status, memory_mb, cpu_count, disk_mb, name, tags on sandboxes
      for each row when (old.status is distinct from new.status or old.memory_mb <> new.memory_mb or old.cpu_count <> new.cpu_count
        or old.disk_mb <> new.disk_mb or old.name is distinct from new.name or old.tags <> new.tags)
      execute function usage_of_sandbox()`,
    `create function usage_of_session() returns trigger language plpgsql as $$
      begin
        insert into usage_models (session_id, hour, org_id, key_id, model, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,
            cost_nano_usd, is_cost_known)
          select new.id, date_trunc('hour', clock_timestamp()), new.org_id, new.key_id, coalesce(config ->> 'model', ''),
            new.input_tokens - old.input_tokens, new.output_tokens - old.output_tokens,
            new.cache_read_tokens - old.cache_read_tokens, new.cache_write_tokens - old.cache_write_tokens,
            coalesce(new.cost_nano_usd - old.cost_nano_usd, 0), new.cost_nano_usd is not null
          from agent_configs where hash = new.agent_config_hash
          on conflict (session_id, hour) do update set
            input_tokens = usage_models.input_tokens + excluded.input_tokens,
            output_tokens = usage_models.output_tokens + excluded.output_tokens,
            cache_read_tokens = usage_models.cache_read_tokens + excluded.cache_read_tokens,
            cache_write_tokens = usage_models.cache_write_tokens + excluded.cache_write_tokens,
            cost_nano_usd = usage_models.cost_nano_usd + excluded.cost_nano_usd,
            is_cost_known = usage_models.is_cost_known and excluded.is_cost_known;
        return null;
      end
    $$`,
    `create trigger usage_of_session after update of input_tokens, output_tokens on sessions
      for each row when (old.input_tokens <> new.input_tokens or old.output_tokens <> new.output_tokens)
      execute function usage_of_session()`,
    // What runs now is counted from now on.
    `insert into usage_sandboxes (sandbox_id, org_id, key_id, name, status, tags, tags_updated_at, created_at)
      select id, org_id, key_id, name, status, tags, tags_updated_at, created_at from sandboxes on conflict do nothing`,
    `insert into usage_spans (org_id, sandbox_id, started_at, memory_mb, cpu_count, disk_mb)
      select org_id, id, clock_timestamp(), memory_mb, cpu_count, disk_mb from sandboxes where status = 'running' on conflict do nothing`,
  ],

  // Destinations of webhooks, and the queue of what they are to get.
  '0007-webhooks': [
    // `after_number`: the newest event that it does not get. `circuit_until`: no attempt before, since it fails. Headers and secrets are sealed.
    `create table webhook_destinations (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      name text,
      url text not null,
      sealed_secret text collate "C" not null,
      sealed_old_secret text collate "C",
      old_secret_until timestamptz(3),
      sealed_headers text collate "C",
      event_types text[] not null,
      sandbox_id text collate "C",
      payload text collate "C" not null,
      after_number bigint not null,
      is_enabled boolean not null,
      disabled_reason text,
      is_disabling_told boolean not null default true,
      failing_since timestamptz(3),
      failures integer not null default 0,
      circuit_until timestamptz(3),
      dropped integer not null default 0,
      created_at timestamptz(3) not null,
      updated_at timestamptz(3) not null
    )`,
    'create index webhook_destinations_org on webhook_destinations (org_id, created_at)',
    'create index webhook_destinations_sandbox on webhook_destinations (sandbox_id) where sandbox_id is not null',
    // Up to which event the log of an organisation is handed over. Those without destinations have none.
    `create table webhook_cursors (
      org_id text collate "C" primary key references organisations,
      number bigint not null
    )`,
    // Messages of one lane of a destination are delivered one after the other.
    `create table webhook_messages (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      destination_id text collate "C" not null constraint webhook_messages_destination references webhook_destinations on delete cascade,
      event_id text not null,
      event_type text collate "C" not null,
      lane integer not null,
      body text not null,
      state text collate "C" not null,
      attempts integer not null default 0,
      next_attempt_at timestamptz(3),
      created_at timestamptz(3) not null default clock_timestamp(),
      constraint webhook_messages_event unique (destination_id, event_id)
    )`,
    'create index webhook_messages_age on webhook_messages (created_at)',
    `create index webhook_messages_pending on webhook_messages (destination_id, created_at) where state = 'pending'`,
    `create table webhook_attempts (
      id bigint generated always as identity primary key,
      message_id text collate "C" not null constraint webhook_attempts_message references webhook_messages on delete cascade,
      destination_id text collate "C" not null,
      started_at timestamptz(3) not null,
      duration_ms integer not null,
      state text collate "C" not null,
      response_status_code integer,
      error text
    )`,
    'create index webhook_attempts_destination on webhook_attempts (destination_id, id desc)',
    'create index webhook_attempts_message on webhook_attempts (message_id)',
  ],

  // Who has asked for what.
  '0008-audit': [
    // No reference to the organisation: what was done stays on record when it is deleted. The operator's own chain has an empty id.
    `create table audit_entries (
      org_id text collate "C" not null,
      number bigint not null,
      ts timestamptz(3) not null,
      actor_type text collate "C" not null,
      actor_id text collate "C",
      address text collate "C",
      operation text collate "C" not null,
      request text collate "C" not null,
      subject jsonb not null,
      status integer,
      previous_hash text collate "C" not null,
      hash text collate "C" not null,
      primary key (org_id, number)
    )`,
    `create table audit_heads (
      org_id text collate "C" primary key,
      number bigint not null,
      hash text collate "C" not null,
      pruned_number bigint not null default 0,
      pruned_hash text collate "C" not null,
      told_number bigint not null default 0
    ) with (fillfactor = 20)`,
  ],

  // What the quotas of an organisation count by.
  '0009-quotas': [],

  // What sandboxes may reach, and the secrets that are sent in their place. Values and keys are sealed (`secret/key-ring.ts`).
  '0010-egress': [
    // `sandbox_id`: the hidden store of one sandbox. It has no reference, since the store is there before the sandbox has a record.
    `create table secret_stores (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      name text collate "C" not null,
      egress_allowlist jsonb not null default '[]',
      is_default boolean not null default false,
      sandbox_id text collate "C",
      created_at timestamptz(3) not null,
      updated_at timestamptz(3) not null
    )`,
    'create unique index secret_stores_name on secret_stores (org_id, name) where sandbox_id is null',
    'create unique index secret_stores_sandbox on secret_stores (sandbox_id) where sandbox_id is not null',
    `create table secrets (
      id text collate "C" primary key,
      store_id text collate "C" not null constraint secrets_store references secret_stores on delete cascade,
      name text collate "C" not null,
      sealed_value text collate "C" not null,
      allowed_hosts jsonb not null,
      places jsonb not null,
      shape text collate "C" not null,
      sign jsonb,
      created_at timestamptz(3) not null,
      updated_at timestamptz(3) not null,
      constraint secrets_name unique (store_id, name)
    )`,
    // The certificate authorities of the lineages of sandboxes.
    `create table egress_authorities (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      certificate text not null,
      sealed_key text collate "C" not null,
      created_at timestamptz(3) not null default now()
    )`,
    'create index egress_authorities_org on egress_authorities (org_id)',
    `create table egress_log (
      org_id text collate "C" not null references organisations,
      sandbox_id text collate "C" not null constraint egress_log_sandbox references sandboxes on delete cascade,
      number bigint not null,
      at timestamptz(3) not null,
      entry jsonb not null,
      primary key (sandbox_id, number)
    )`,
    'create index egress_log_org on egress_log (org_id, at)',
    ...['sandboxes', 'images', 'organisations'].map((table) => `alter table ${table} add column egress jsonb`),
  ],
  // The turns of sessions, and what one can go back to.
  '0011-turns': [
    // `head_turn_id`: the newest turn of the branch in force. `unsaved_turn_id`: it has ended, and its checkpoint is to be taken.
    `alter table sessions
      add column head_turn_id text collate "C",
      add column unsaved_turn_id text collate "C",
      add column pending_rewind jsonb,
      add column paused_for text,
      add column archived_for text,
      add column fork_point text collate "C"`,
    'create index sessions_forks on sessions (forked_from) where forked_from is not null',
    // Not by `activity`, which changes with each turn.
    `create index sessions_checkpoint on sessions (checkpoint_id) where checkpoint_id is not null and status = 'running'`,
    // `turn_id`: the user message whose turn said it; of a message that has had no turn null. `is_left`: a rewind has left its turn.
    'alter table messages add column turn_id text collate "C", add column is_left boolean not null default false',
    // `usage_before`: the counters of the session when it began. `left_event`: the number of the `rewound` that left it.
    `create table session_turns (
      position bigint generated always as identity,
      session_id text collate "C" not null references sessions on delete cascade,
      message_id text collate "C" not null,
      parent_id text collate "C",
      first_event integer not null,
      last_event integer,
      started_at timestamptz(3) not null,
      ended_at timestamptz(3),
      subtype text,
      preview text,
      usage_before jsonb not null,
      files jsonb,
      left_event integer,
      primary key (session_id, message_id)
    )`,
    'create unique index session_turns_order on session_turns (session_id, position)',
    // A state of a session that is kept as a checkpoint. `turn_id`: the newest turn of its branch then.
    `create table session_points (
      position bigint generated always as identity,
      checkpoint_id text collate "C" primary key,
      session_id text collate "C" not null references sessions on delete cascade,
      origin text not null,
      turn_id text collate "C",
      after_event integer not null,
      kind text not null,
      size_bytes bigint not null,
      duration_ms integer not null,
      project jsonb not null,
      created_at timestamptz(3) not null
    )`,
    'create index session_points_order on session_points (session_id, after_event, position)',
    // `event`: the number of its `rewound`. `turn_id`: the newest turn of the branch in force from then on.
    `create table session_rewinds (
      session_id text collate "C" not null references sessions on delete cascade,
      event integer not null,
      what text not null,
      checkpoint_id text collate "C" not null,
      undo_checkpoint_id text collate "C" not null,
      turn_id text collate "C",
      restored_message_id text collate "C",
      adopted_from text collate "C",
      created_at timestamptz(3) not null,
      primary key (session_id, event)
    )`,
    // A moment of a session that is shown to whoever has its link. `token_hash`: SHA-256 in hex.
    `create table session_capsules (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      session_id text collate "C" not null constraint session_capsules_session references sessions on delete cascade,
      token_hash text collate "C" not null constraint session_capsules_token unique,
      scope text not null,
      event integer not null,
      checkpoint_id text collate "C",
      reason text,
      forks integer not null default 0,
      created_at timestamptz(3) not null,
      expires_at timestamptz(3) not null,
      revoked_at timestamptz(3)
    )`,
    'create index session_capsules_list on session_capsules (session_id, created_at)',
  ],
} as const satisfies Record<string, readonly string[]>

import { join } from 'node:path'
import { defined } from '../lib/defined.ts'
import type { Log } from '../lib/log.ts'
import { KeyFile, keyFileName, KeyRing, Secrets } from '../secret/index.ts'
import type { Store } from '../store/index.ts'
import type { Config } from './config.ts'

interface SecretParts {
  config: Pick<Config, 'dataDir' | 'secretsKeys' | 'limits'>
  store: Pick<Store, 'secrets'>
  log: Log
}

/** Secret stores with the keys of the environment, or of the data directory. No key is made before something is to be sealed. */
export function createSecrets({ config, store: { secrets: store }, log }: SecretParts): Secrets {
  const { dataDir, secretsKeys: configured, limits } = config
  const file = new KeyFile(join(dataDir, keyFileName))
  const ring = new KeyRing({ configured, file, keysInUse: () => store.keysInUse() })
  return new Secrets({ store, ring, log, ...defined({ limits: limits.secret }) })
}

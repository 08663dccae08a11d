import { createRunc } from '../../src/runtime/oci/runc.ts'
import { createFakeOciRuntime } from './fake-oci-runtime.ts'
import { ociRuntimeConformance } from './oci-runtime.ts'

ociRuntimeConformance('runc', createRunc)
ociRuntimeConformance('fake', createFakeOciRuntime)
